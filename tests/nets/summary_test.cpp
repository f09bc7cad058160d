#include "nets/summary.h"

#include <gtest/gtest.h>

#include <set>

#include "nets/nets.h"

namespace carole::nets {
namespace {

TEST(Summary, OfLeNetByHand) {
  const Model model = BuildModel(FindNet("lenet"), {.batch_size = 1});
  const NetSummary summary = Summarize(*model.graph);
  ASSERT_EQ(summary.layers.size(), 8u);
  const LayerRow& conv1 = summary.layers[0];
  EXPECT_EQ(conv1.name, "LeNet/conv1");
  EXPECT_EQ(conv1.kind, "conv2d+relu");
  EXPECT_EQ(conv1.output, (Shape{1, 32, 28, 28}));
  EXPECT_EQ(conv1.parameters, 5 * 5 * 32 + 32);
  EXPECT_EQ(conv1.flops, 28 * 28 * 32 * (2 * 25 + 1 + 1));
  const LayerRow& pool1 = summary.layers[1];
  EXPECT_EQ(pool1.kind, "pool2d");
  EXPECT_EQ(pool1.flops, 14 * 14 * 32 * 4);
  const LayerRow& fc3 = summary.layers[5];
  EXPECT_EQ(fc3.name, "LeNet/fc3");
  EXPECT_EQ(fc3.output, (Shape{1, 1024}));
  EXPECT_EQ(fc3.parameters, 3136 * 1024 + 1024);
  EXPECT_EQ(fc3.flops, 1024 * (2 * 3136 + 1 + 1));
  EXPECT_EQ(summary.trainable, 3'274'634);
  EXPECT_EQ(summary.statistics, 0);
}

TEST(Summary, RowsAddUp) {
  for (const NetEntry& net : kNets) {
    const Model model = BuildModel(net, {.batch_size = 1});
    const NetSummary summary = Summarize(*model.graph);
    int64_t parameters = 0, flops = 0;
    std::set<std::string> names;
    for (const LayerRow& row : summary.layers) {
      parameters += row.parameters;
      flops += row.flops;
      EXPECT_TRUE(names.insert(row.name).second) << row.name << " has two rows";
    }
    EXPECT_EQ(parameters, net.num_parameters) << net.name;
    EXPECT_EQ(summary.trainable, net.num_parameters) << net.name;
    EXPECT_EQ(summary.flops, flops) << net.name;
  }
}

TEST(Summary, NormalizationBelongsToItsLayer) {
  const Model model = BuildModel(FindNet("resnet_v2_50"), {.batch_size = 1});
  const NetSummary summary = Summarize(*model.graph);
  EXPECT_EQ(summary.statistics, 45'440);
  EXPECT_EQ(summary.layers[2].name, "resnet_v2_50/block1/unit_1/bottleneck_v2/preact");
  EXPECT_EQ(summary.layers[2].kind, "batch_norm+relu");
  EXPECT_EQ(summary.layers[4].name, "resnet_v2_50/block1/unit_1/bottleneck_v2/conv1");
  EXPECT_EQ(summary.layers[4].kind, "conv2d+batch_norm+relu");
}

}  // namespace
}  // namespace carole::nets
