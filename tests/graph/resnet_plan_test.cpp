// ResNet-50's training plan on oneDNN: activations stay in blocks from layer to layer.
#include <gtest/gtest.h>

#include <algorithm>

#include "nets/nets.h"
#include "src/core/simd.h"
#include "src/graph/autodiff.h"
#include "src/graph/executable.h"
#include "src/graph/rewrites.h"

namespace carole {
namespace {

auto SumsOfGradients(const Graph& graph) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const Node& n) {
    return !n.dead && n.kind == OpKind::kAdd && n.phase == Phase::kBackward;
  });
}

// Blocks are 16 channels wide with AVX-512 and 8 with AVX2; the counts are equal.
TEST(ResnetPlan, ReordersOnlyWhereLayoutsMustChange) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "built without oneDNN";
  if (SimdLevel() < 3) GTEST_SKIP() << "this CPU has no AVX2: oneDNN takes plain layouts";
  const auto backend = MakeOneDnnBackend(2);
  backend->UseWinograd(Winograd::kNever);  // whose filters are plain
  nets::Model model =
      nets::BuildModel(nets::FindNet("resnet_v1_50"), {.batch_size = 2, .training = true});
  const RewriteCounts counts = Fuse(*model.graph, *backend);
  EXPECT_EQ(counts.batch_norm_add, 16) << "one for each unit";
  EXPECT_EQ(counts.batch_norm_relu, 1 + 3 * 16) << "the root, and three in each unit";
  Differentiate(*model.graph);
  EXPECT_EQ(SumsOfGradients(*model.graph), 1)
      << "of the 16 sums only the one behind the first pool";
  const Executable executable(*model.graph, *backend);
  const ExecutableStatistics& s = executable.statistics();
  // The image: it comes in NHWC, and the first convolution, of three channels, wants (N,C,H,W).
  EXPECT_EQ(s.activation_reorders, 1) << executable.Describe();
  // The data gradient of every convolution but the first wants its filter's blocks transposed: 52
  // of the body and the logits. The logits' filter is used in a third form by their forward pass.
  EXPECT_EQ(s.weight_reorders, 54) << executable.Describe();
  EXPECT_LT(static_cast<double>(s.arena_bytes), 1.05 * static_cast<double>(s.peak_live_bytes));
  backend->UseWinograd(Winograd::kWhereFaster);
  EXPECT_EQ(Executable(*model.graph, *backend).statistics().activation_reorders, 1);
}

// Shortcuts take the maximum of maps that become one pixel, which may lie in blocks and plain at
// once; where it was is for the maker's eyes only, and a plan that would convert it is refused.
TEST(ResnetPlan, SmallImagesHaveOne) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "built without oneDNN";
  const nets::Model model = nets::BuildModel(nets::FindNet("resnet_v1_50"),
                                             {.batch_size = 2, .image_size = 32, .training = true});
  const auto backend = MakeOneDnnBackend(2);
  Fuse(*model.graph, *backend);
  Differentiate(*model.graph);
  EXPECT_GT(Executable(*model.graph, *backend).statistics().kernels, 0);
}

// Units of version 2 begin with their batch norm, which adds what comes round it; four units make
// their shortcut from what it gives.
TEST(ResnetPlan, SumsRoundAUnitAreMadeByItsLastConvolutionAndItsFirstNorm) {
  nets::Model model =
      nets::BuildModel(nets::FindNet("resnet_v2_50"), {.batch_size = 2, .training = true});
  EXPECT_EQ(Fuse(*model.graph, *MakeReferenceBackend(1)).conv_add, 16);
  Differentiate(*model.graph);
  EXPECT_EQ(SumsOfGradients(*model.graph), 4);
}

}  // namespace
}  // namespace carole
