#include "io/checkpoint/keras_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/core/error.h"

namespace carole::io {
namespace {

using ::testing::ElementsAre;

TEST(KerasLayout, MakesOneLayerForEachScope) {
  const std::vector<std::string> names = {"n/c/biases",
                                          "n/c/weights",
                                          "n/c/BatchNorm/beta",
                                          "n/c/BatchNorm/moving_mean",
                                          "n/sep/biases",
                                          "n/sep/pointwise_weights",
                                          "n/sep/depthwise_weights",
                                          "n/c/BatchNorm/moving_variance",
                                          "n/c/BatchNorm/gamma",
                                          "alone",
                                          "n/odd/alpha"};
  const auto layers = MapToKeras(names);
  ASSERT_EQ(layers.size(), 5u);
  EXPECT_EQ(layers[0].name, "n__c");
  EXPECT_THAT(layers[0].weight_names, ElementsAre("n__c/kernel:0", "n__c/bias:0"));
  EXPECT_THAT(layers[0].variables, ElementsAre(1, 0));
  EXPECT_EQ(layers[1].name, "n__c__BatchNorm");
  EXPECT_THAT(layers[1].variables, ElementsAre(8, 2, 3, 7));  // gamma, beta, mean, variance
  EXPECT_THAT(layers[2].weight_names, ElementsAre("n__sep/depthwise_kernel:0",
                                                  "n__sep/pointwise_kernel:0", "n__sep/bias:0"));
  EXPECT_THAT(layers[3].weight_names, ElementsAre("alone/alone:0"));
  EXPECT_THAT(layers[4].weight_names, ElementsAre("n__odd/alpha:0"));
}

TEST(KerasLayout, RefusesNamesThatCannotBeStored) {
  for (const char* name : {"", "/a", "a/", "a//b", "a/./b"}) {
    EXPECT_THROW(MapToKeras(std::vector<std::string>{name}), DataError) << name;
  }
  EXPECT_THROW(MapToKeras(std::vector<std::string>{"a/weights", "a/weights"}), DataError);
  EXPECT_THROW(MapToKeras(std::vector<std::string>{"a/b/weights", "a__b/weights"}), DataError);
}

}  // namespace
}  // namespace carole::io
