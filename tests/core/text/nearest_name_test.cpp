#include "src/core/text/nearest_name.h"

#include <gtest/gtest.h>

namespace carole {
namespace {

const std::vector<std::string> kFlags = {"batch_size",
                                         "learning_rate",
                                         "learning_rate_decay_type",
                                         "max_num_batches",
                                         "train_epochs",
                                         "epochs_per_eval",
                                         "seed"};

TEST(NearestName, FindsTheCandidateWithTheFewestChanges) {
  for (const auto& [word, nearest] : {std::pair("bath_size", "batch_size"),
                                      {"BATCH_SIZE", "batch_size"},
                                      {"max_batches", "max_num_batches"},
                                      {"learning_rat", "learning_rate"},
                                      {"sed", "seed"}})
    EXPECT_EQ(NearestName(word, kFlags), nearest) << word;
}

TEST(NearestName, FindsTheShortestCandidateThatContainsTheWord) {
  EXPECT_EQ(NearestName("epochs", kFlags), "train_epochs");
  EXPECT_EQ(NearestName("rate", kFlags), "learning_rate");
}

TEST(NearestName, FindsTheShortestCandidateThatTheWordAbbreviates) {
  const std::vector<std::string> nets = {"lenet", "resnet_v1_101", "resnet_v1_50", "vgg_16"};
  for (const auto& [word, nearest] : {std::pair("resnet50", "resnet_v1_50"),
                                      {"resnet", "resnet_v1_50"},
                                      {"ResNet101", "resnet_v1_101"},
                                      {"vgg16", "vgg_16"},
                                      {"lennet", "lenet"}})
    EXPECT_EQ(NearestName(word, nets), nearest) << word;
}

TEST(NearestName, FindsNothingIfNoCandidateIsSimilar) {
  for (const char* word : {"zzzzzz", "x", "momentum"})
    EXPECT_EQ(NearestName(word, kFlags), "") << word;
  EXPECT_EQ(NearestName("np", {"v"}), "");
  EXPECT_EQ(NearestName("dropout", {"report"}), "") << "the distance is 3";
}

}  // namespace
}  // namespace carole
