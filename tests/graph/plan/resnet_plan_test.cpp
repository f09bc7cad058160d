// Tests the plan for training ResNet-50 with oneDNN: activations stay in blocked layouts from
// layer to layer.
#include <gtest/gtest.h>

#include <algorithm>

#include "nets/nets.h"
#include "src/backend/ops/add.h"
#include "src/core/simd.h"
#include "src/graph/autodiff.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/plan/executable.h"
#include "src/graph/rewrites.h"

namespace carole {
namespace {

// The number of adds in the backward graph that were not fused.
auto SumsOfGradients(const Graph& graph) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const Node& n) {
    return !n.dead && n.kind == op::kAdd && n.phase == Phase::kBackward;
  });
}

// Blocks are 16 channels wide with AVX-512 and 8 with AVX2; the counts are equal.
TEST(ResnetPlan, ReordersOnlyIfLayoutsMustChange) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  if (SimdLevel() < 3) GTEST_SKIP() << "skipped: this CPU has no AVX2: oneDNN takes plain layouts";
  const auto backend = MakeOneDnnBackend(2);
  backend->UseWinograd(Winograd::kNever);  // its filters are plain, which changes the counts
  nets::Model model =
      nets::BuildModel(nets::FindNet("resnet_v1_50"), {.batch_size = 2, .training = true});
  const RewriteCounts counts = Fuse(*model.graph, *backend);
  EXPECT_EQ(counts.at("batch_norm_add"), 16) << "one for each unit";
  EXPECT_EQ(counts.at("batch_norm_relu"), 1 + 3 * 16) << "the root, and three in each unit";
  Differentiate(*model.graph);
  EXPECT_EQ(SumsOfGradients(*model.graph), 1)
      << "of the 16 sums, only the one at the first pool is left";
  const Executable executable(Compile(*model.graph, *backend));
  const PlanStatistics& s = executable.plan().statistics;
  // The image is NHWC, and the first convolution with its three channels wants NCHW.
  EXPECT_EQ(s.activation_reorders, 1) << executable.Describe();
  // The data gradients of all convolutions but the first want the filter in transposed blocks: 52
  // in the body, and the logits. The forward pass of the logits uses its filter in a third layout.
  EXPECT_EQ(s.weight_reorders, 54) << executable.Describe();
  EXPECT_LT(static_cast<double>(s.arena_bytes), 1.05 * static_cast<double>(s.peak_live_bytes));
  backend->UseWinograd(Winograd::kIfFaster);
  EXPECT_EQ(Compile(*model.graph, *backend).statistics.activation_reorders, 1);
}

// With small images, the max pools of shortcuts have one pixel, whose layout is both blocked and
// plain. Their argmax can be read only by the same kind of kernel, so the compiler throws if it
// would have to reorder it.
TEST(ResnetPlan, CompilesForSmallImages) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  const nets::Model model = nets::BuildModel(nets::FindNet("resnet_v1_50"),
                                             {.batch_size = 2, .image_size = 32, .training = true});
  const auto backend = MakeOneDnnBackend(2);
  Fuse(*model.graph, *backend);
  Differentiate(*model.graph);
  EXPECT_GT(Compile(*model.graph, *backend).statistics.kernels, 0);
}

// Units of ResNet v2 begin with a batch norm. In backward it adds the gradient of the shortcut. In
// four units the shortcut starts after this batch norm, so there the sum of gradients stays.
TEST(ResnetPlan, ResidualSumsAreFused) {
  nets::Model model =
      nets::BuildModel(nets::FindNet("resnet_v2_50"), {.batch_size = 2, .training = true});
  EXPECT_EQ(Fuse(*model.graph, *MakeReferenceBackend(1)).at("conv_add"), 16);
  Differentiate(*model.graph);
  EXPECT_EQ(SumsOfGradients(*model.graph), 4);
}

}  // namespace
}  // namespace carole
