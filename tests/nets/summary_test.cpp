#include "nets/summary.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "nets/nets.h"
#include "src/backend/backend.h"
#include "src/backend/ops/pool2d.h"
#include "src/graph/autodiff.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/rewrites.h"

namespace carole::nets {
namespace {

TEST(Summary, OfLeNetEqualsTheOneComputedByHand) {
  const Model model = BuildModel(FindNet("lenet"), {.batch_size = 1});
  const NetSummary summary = Summarize(*model.graph);
  ASSERT_EQ(summary.layers.size(), 8u);
  const LayerSummary& conv1 = summary.layers[0];
  EXPECT_EQ(conv1.name, "LeNet/conv1");
  EXPECT_EQ(conv1.kind, "conv2d+relu");
  EXPECT_EQ(conv1.output, (Shape{1, 32, 28, 28}));
  EXPECT_EQ(conv1.parameters, 5 * 5 * 32 + 32);
  EXPECT_EQ(conv1.flops, 28 * 28 * 32 * (2 * 25 + 1 + 1));
  const LayerSummary& pool1 = summary.layers[1];
  EXPECT_EQ(pool1.kind, "pool2d");
  EXPECT_EQ(pool1.flops, 14 * 14 * 32 * 4);
  const LayerSummary& fc3 = summary.layers[5];
  EXPECT_EQ(fc3.name, "LeNet/fc3");
  EXPECT_EQ(fc3.output, (Shape{1, 1024}));
  EXPECT_EQ(fc3.parameters, 3136 * 1024 + 1024);
  EXPECT_EQ(fc3.flops, 1024 * (2 * 3136 + 1 + 1));
  EXPECT_EQ(summary.parameters.trainable, 3'274'634);
  EXPECT_EQ(summary.parameters.statistics, 0);
}

TEST(Summary, TotalsAreTheSumsOfTheLayers) {
  for (const NetEntry& net : kNets) {
    const Model model = BuildModel(net, {.batch_size = 1, .training = true, .dropout = false});
    const NetSummary summary = Summarize(*model.graph);
    int64_t parameters = 0, flops = 0;
    std::set<std::string> names;
    for (const LayerSummary& row : summary.layers) {
      parameters += row.parameters;
      flops += row.flops;
      if (row.parameters == 0) continue;
      EXPECT_TRUE(names.insert(row.name).second) << row.name << " has two rows";
    }
    EXPECT_EQ(parameters, net.num_parameters) << net.name;
    EXPECT_EQ(summary.parameters.trainable, net.num_parameters) << net.name;
    EXPECT_EQ(summary.flops, flops) << net.name;
  }
}

TEST(Summary, NormalizationBelongsToItsLayer) {
  const Model model = BuildModel(FindNet("resnet_v2_50"), {.batch_size = 1});
  const NetSummary summary = Summarize(*model.graph);
  EXPECT_EQ(summary.parameters.statistics, 45'440);
  EXPECT_EQ(summary.layers[2].name, "resnet_v2_50/block1/unit_1/bottleneck_v2/preact");
  EXPECT_EQ(summary.layers[2].kind, "batch_norm+relu");
  EXPECT_EQ(summary.layers[4].name, "resnet_v2_50/block1/unit_1/bottleneck_v2/conv1");
  EXPECT_EQ(summary.layers[4].kind, "conv2d+batch_norm+relu");
}

TEST(Activations, OfLeNetEqualThoseComputedByHand) {
  const Model model =
      BuildModel(FindNet("lenet"), {.batch_size = 1, .training = true, .dropout = false});
  const auto backend = MakeReferenceBackend(1);
  Fuse(*model.graph, *backend);
  Differentiate(*model.graph);
  // Kept for backward: the images; the ReLU results of conv1, conv2 and fc3; the results of the
  // pools (fc3 reads that of pool2) and the positions of their maxima; dlogits. The largest working
  // set are the two gradients at the ReLU of conv1.
  constexpr int64_t kConv1 = 28 * 28 * 32, kPool1 = 14 * 14 * 32, kConv2 = 14 * 14 * 64,
                    kPool2 = 7 * 7 * 64;
  const ActivationMemory memory = MeasureActivations(*model.graph);
  int64_t argmax = 0;  // bytes; the type depends on the backend
  for (const Node& node : model.graph->nodes()) {
    if (node.kind != op::kPool2d) continue;
    const ValueId id = node.outputs[1];
    argmax +=
        model.graph->shape(id).size() * static_cast<int64_t>(SizeOf(model.graph->value(id).dtype));
  }
  EXPECT_EQ(memory.kept_bytes,
            4 * (28 * 28 + kConv1 + kPool1 + kConv2 + kPool2 + 1024 + 10) + argmax);
  EXPECT_EQ(memory.working_set_bytes, 4 * 2 * kConv1);
}

// The estimate, which does not know the kernels, is close to the plan that is made with them.
TEST(Activations, AreCloseToTheMemoryPlanOfResnet) {
  const Model model = BuildModel(FindNet("resnet_v1_50"), {.batch_size = 32, .training = true});
  const auto backend = OneDnnAvailable() ? MakeOneDnnBackend(1) : MakeReferenceBackend(1);
  Fuse(*model.graph, *backend);
  Differentiate(*model.graph);
  const ActivationMemory memory = MeasureActivations(*model.graph);
  const auto planned = static_cast<double>(Compile(*model.graph, *backend).statistics.arena_bytes);
  const auto live = static_cast<double>(memory.peak_bytes);
  std::printf(
      "resnet_v1_50, batch 32: memory plan %.0f MB (estimated %.0f MB), peak of live values %.0f "
      "MB, "
      "kept for backward %.0f MB, largest working set %.0f MB\n",
      planned / 1e6, static_cast<double>(memory.planned_bytes) / 1e6, live / 1e6,
      static_cast<double>(memory.kept_bytes) / 1e6,
      static_cast<double>(memory.working_set_bytes) / 1e6);
  EXPECT_NEAR(planned, live, 0.1 * live);
  EXPECT_NEAR(planned, static_cast<double>(memory.planned_bytes), 0.1 * live);
  EXPECT_LE(planned, 1.1 * static_cast<double>(memory.kept_bytes + memory.working_set_bytes));
  // The maxima come at different times. The peak is at the first operation of backward, whose own
  // results are small.
  EXPECT_LE(memory.peak_bytes, memory.kept_bytes + memory.working_set_bytes);
  EXPECT_GE(memory.peak_bytes, memory.kept_bytes);
}

}  // namespace
}  // namespace carole::nets
