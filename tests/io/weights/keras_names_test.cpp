#include "io/weights/keras_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carole::io {
namespace {

using ::testing::ElementsAre;

TEST(LegacyWeightNames, AreThoseOfTheLayerInAllVersionsOfKeras) {
  EXPECT_THAT(LegacyWeightNames("c", {"c/kernel:0", "c/bias:0"}),
              ElementsAre("c/kernel", "c/bias"));
  EXPECT_THAT(LegacyWeightNames("c", {"c/kernel", "c/bias"}), ElementsAre("c/kernel", "c/bias"));
  EXPECT_THAT(LegacyWeightNames("c", {"sequential/c/kernel"}), ElementsAre("c/kernel"));
  EXPECT_THAT(LegacyWeightNames("c", {"c_1/kernel:0", "c_1/bias:0"}),
              ElementsAre("c/kernel", "c/bias"));  // the second net in a graph of TensorFlow 1
  EXPECT_THAT(LegacyWeightNames("block1/c", {"block1/c/kernel:0"}), ElementsAre("block1/c/kernel"));
}

// As in the files that keras.applications distributes.
TEST(LegacyWeightNames, ReadKeras1) {
  EXPECT_THAT(LegacyWeightNames("block1_conv1", {"block1_conv1_W_1:0", "block1_conv1_b_1:0"}),
              ElementsAre("block1_conv1/kernel", "block1_conv1/bias"));
  EXPECT_THAT(LegacyWeightNames("res2b_branch2b", {"res2b_branch2b_W:0", "res2b_branch2b_b:0"}),
              ElementsAre("res2b_branch2b/kernel", "res2b_branch2b/bias"));
  EXPECT_THAT(LegacyWeightNames("bn_conv1", {"bn_conv1_gamma:0", "bn_conv1_beta:0",
                                             "bn_conv1_running_mean:0", "bn_conv1_running_std:0"}),
              ElementsAre("bn_conv1/gamma", "bn_conv1/beta", "bn_conv1/moving_mean",
                          "bn_conv1/moving_variance"));
  EXPECT_THAT(LegacyWeightNames("vgg16", {"block1_conv1_W_1:0", "fc1_b:0"}),
              ElementsAre("vgg16/block1_conv1/kernel", "vgg16/fc1/bias"));
}

TEST(LegacyWeightNames, KeepTheLayersOfInnerModels) {
  EXPECT_THAT(LegacyWeightNames("net", {"c/kernel:0", "bn/gamma:0", "dw/kernel:0"}),
              ElementsAre("net/c/kernel", "net/bn/gamma", "net/dw/kernel"));
  EXPECT_THAT(LegacyWeightNames("net", {"net/c/kernel", "outer/net/d/kernel"}),
              ElementsAre("net/c/kernel", "net/d/kernel"));
  EXPECT_THAT(LegacyWeightNames("net", {"dense/kernel", "dense/bias"}),
              ElementsAre("net/dense/kernel", "net/dense/bias"));
  EXPECT_THAT(LegacyWeightNames("net", {"net_1/kernel", "net_2/bias"}),
              ElementsAre("net/net_1/kernel", "net/net_2/bias"));
}

TEST(LegacyWeightNames, AreUnique) {
  EXPECT_THAT(LegacyWeightNames("net", {"a/net/c/kernel:0", "b/net/c/kernel:0"}),
              ElementsAre("net/a/net/c/kernel:0", "net/b/net/c/kernel:0"));
}

TEST(NameOfNumberedWeight, FollowsTheClass) {
  EXPECT_EQ(NameOfNumberedWeight("conv2d_12", "0", 1), "kernel");
  EXPECT_EQ(NameOfNumberedWeight("separable_conv2d", "2", 3), "bias");
  EXPECT_EQ(NameOfNumberedWeight("batch_normalization", "0", 4), "gamma");
  EXPECT_EQ(NameOfNumberedWeight("batch_normalization_3", "0", 3), "beta");
  EXPECT_EQ(NameOfNumberedWeight("dense", "7", 8), "7");
  EXPECT_EQ(NameOfNumberedWeight("dense", "10", 11), "10");
  EXPECT_EQ(NameOfNumberedWeight("unheard_of", "0", 1), "0");
}

}  // namespace
}  // namespace carole::io
