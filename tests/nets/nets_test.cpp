// Checks each row of the table of nets: it can be built, has the declared number of parameters, and
// rejects unsupported options.
#include "nets/nets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nets/summary.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/dropout.h"
#include "src/core/error.h"
#include "src/graph/autodiff.h"
#include "tests/support/text_of.h"

namespace carole::nets {

void PrintTo(const NetEntry& net, std::ostream* out) { *out << net.name; }

namespace {

using testing::AllOf;
using testing::HasSubstr;

class NetTable : public testing::TestWithParam<NetEntry> {};

std::string ErrorOf(const NetEntry& net, const ModelOptions& options) {
  return TextOf<UsageError>([&] { BuildModel(net, options); });
}

TEST_P(NetTable, HasTheDeclaredParametersAndShapes) {
  const NetEntry& net = GetParam();
  const Model model = BuildModel(net, {.batch_size = 2, .training = true, .batch_norm_decay = 0.5});
  const Graph& graph = *model.graph;
  for (const Node& node : graph.nodes()) {
    if (node.kind == op::kBatchNorm) {
      EXPECT_EQ(node.attributes.as<BatchNormAttributes>().decay, 0.5) << node.name;
    }
  }
  EXPECT_EQ(CountParameters(graph).trainable, net.num_parameters);
  EXPECT_EQ(graph.shape(graph.input("images")),
            (Shape{2, net.channels, net.image_size, net.image_size}));
  EXPECT_EQ(graph.shape(model.logits), (Shape{2, net.num_classes}));
  EXPECT_EQ(graph.shape(model.predictions), (Shape{2, net.num_classes}));
  ASSERT_FALSE(graph.losses().empty());
  EXPECT_EQ(graph.losses().back().first, "softmax_cross_entropy_loss");
}

TEST_P(NetTable, EveryTrainableVariableGetsAGradient) {
  const Model model = BuildModel(GetParam(), {.batch_size = 2, .training = true});
  Differentiate(*model.graph);
  for (const Variable& v : model.graph->variables()) {
    EXPECT_EQ(v.gradient != kNone, v.trainable) << v.name;
  }
}

// The classifiers are exactly the variables whose shape depends on the number of classes.
TEST_P(NetTable, FindsTheVariablesOfItsClassifiers) {
  const Model model = BuildModel(GetParam(), {.batch_size = 1, .training = true});
  const Model other = BuildModel(GetParam(), {.batch_size = 1, .num_classes = 7, .training = true});
  std::vector<std::string> depend, found;
  for (size_t i = 0; i < model.graph->variables().size(); ++i) {
    const Variable& variable = model.graph->variables()[i];
    if (!(variable.tf_shape == other.graph->variables()[i].tf_shape))
      depend.push_back(variable.name);
  }
  for (const std::vector<std::string>& names : ClassifierVariables(model)) {
    EXPECT_FALSE(names.empty());
    found.insert(found.end(), names.begin(), names.end());
  }
  EXPECT_THAT(found, testing::UnorderedElementsAreArray(depend));
}

TEST_P(NetTable, SupportsTheDeclaredImageSizes) {
  const NetEntry& net = GetParam();
  const int64_t large = std::min<int64_t>(net.max_image_size, net.image_size + 75);
  for (int64_t size : {net.min_image_size, large}) {
    for (int64_t channels : {1, 3}) {
      const Model model = BuildModel(
          net, {.batch_size = 1, .image_size = size, .channels = channels, .num_classes = 7});
      EXPECT_EQ(model.graph->shape(model.logits), (Shape{1, 7})) << size << " pixels";
    }
  }
}

TEST_P(NetTable, RejectsOtherImageSizesAndNamesThoseThatWork) {
  const NetEntry& net = GetParam();
  for (int64_t size : {net.min_image_size - 1, net.max_image_size + 1, int64_t{-1}}) {
    if (size == 0) continue;  // 0 means the default
    const std::string range = std::to_string(net.min_image_size) + " to " +
                              std::to_string(net.max_image_size) + " pixels";
    EXPECT_THAT(ErrorOf(net, {.image_size = size}),
                AllOf(HasSubstr("[nets] " + std::string(net.name) + ": unsupported image size"),
                      HasSubstr("got " + std::to_string(size)), HasSubstr(range)));
  }
}

INSTANTIATE_TEST_SUITE_P(AllNets, NetTable, testing::ValuesIn(kNets),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BuildModel, RejectsUnsupportedOptions) {
  const NetEntry& net = FindNet("lenet");
  EXPECT_THAT(ErrorOf(net, {.num_classes = 1}),
              AllOf(HasSubstr("number of classes"), HasSubstr("got 1, want 2 to 1048576")));
  EXPECT_THAT(ErrorOf(net, {.num_classes = -3}), HasSubstr("got -3, want 2 to"));
  EXPECT_THAT(ErrorOf(net, {.num_classes = int64_t{1} << 60}), HasSubstr("number of classes"));
  EXPECT_THAT(ErrorOf(net, {.channels = 2}), HasSubstr("got 2, want 1 (gray) or 3 (color)"));
  EXPECT_THAT(ErrorOf(net, {.batch_size = 0}), HasSubstr("got 0, want 1 to 65536"));
  EXPECT_THAT(ErrorOf(net, {.label_smoothing = 1.01}), HasSubstr(Option("label_smoothing")));
}

TEST(BuildModel, KeepsEndPointsOnlyIfRequested) {
  const NetEntry& net = FindNet("lenet");
  const Model plain = BuildModel(net, {.batch_size = 1});
  EXPECT_EQ(plain.graph->end_points().size(), 9u);
  EXPECT_THAT(plain.graph->outputs(),
              testing::UnorderedElementsAre(plain.graph->losses()[0].second, plain.logits,
                                            plain.predictions));
  const Model kept = BuildModel(net, {.batch_size = 1, .keep_end_points = true});
  for (const auto& [name, value] : kept.graph->end_points()) {
    EXPECT_THAT(kept.graph->outputs(), testing::Contains(value)) << name;
  }
}

TEST(BuildModel, HasDropoutOnlyInTraining) {
  auto dropouts = [](const ModelOptions& options) {
    const Model model = BuildModel(FindNet("vgg_a"), options);
    std::vector<int64_t> layers;
    for (const Node& node : model.graph->nodes()) {
      if (node.kind == op::kDropout) {
        layers.push_back(node.attributes.as<DropoutAttributes>().layer);
      }
    }
    return layers;
  };
  EXPECT_THAT(dropouts({.batch_size = 1}), testing::IsEmpty());
  EXPECT_THAT(dropouts({.batch_size = 1, .training = true, .dropout = false}), testing::IsEmpty());
  EXPECT_THAT(dropouts({.batch_size = 1, .training = true}), testing::ElementsAre(0, 1));
}

TEST(FindNet, SuggestsTheNearestName) {
  EXPECT_EQ(FindNet("resnet_v1_50").image_size, 224);
  EXPECT_EQ(TryFindNet("resnet"), nullptr);
  EXPECT_THAT(TextOf<UsageError>([] { FindNet("resnet-v2-50"); }),
              AllOf(HasSubstr(Option("model_name")), HasSubstr("got resnet-v2-50"),
                    HasSubstr("did you mean resnet_v2_50?")));
}

}  // namespace
}  // namespace carole::nets
