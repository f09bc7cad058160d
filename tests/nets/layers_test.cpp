// Layers compared with numbers computed by hand, for the cases that no golden file covers.
#include "nets/layers/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "nets/nets.h"
#include "src/backend/ops/add.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/plan/executable.h"
#include "src/graph/rewrites.h"

namespace carole::nets {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

// Runs a layer in double and returns its result. The values of the images are 1, 2, 3, ... in NHWC
// order. `variables` gives values by name: one for all elements, or one for each. Other variables
// have their initial values.
std::vector<double> RunLayer(const Shape& images, const ModelOptions& options,
                             const std::map<std::string, std::vector<float>>& variables,
                             const std::function<ValueId(NetBuilder&, ValueId)>& layer) {
  Graph graph(DType::kF64);
  const ValueId x = graph.AddInput("images", images, DType::kF64);
  NetBuilder builder(graph, options);
  const ValueId y = layer(builder, x);
  graph.MarkOutput(y);
  const auto backend = MakeReferenceBackend(1);
  Fuse(graph, *backend);
  Executable executable(Compile(graph, *backend));
  const auto store = executable.MakeStore();
  store->Initialize(1);
  for (const auto& [name, given] : variables) {
    const int v = store->Find(name);
    CAROLE_CHECK(v >= 0, "no variable {}", name);
    std::vector<float> values = given;
    if (values.size() == 1) values.resize(store->variables()[v].shape.size(), given[0]);
    store->Write(v, values);
  }
  executable.Bind(*store);
  double* pixels = executable.Input("images").as<double>();
  for (int64_t i = 0; i < images.size(); ++i) pixels[i] = static_cast<double>(i + 1);
  executable.Run({});
  return executable.Output(y);
}

Padding Pads(int64_t pixels, Pad pad, Window window, int64_t stride) {
  return PaddingOf({1, 1, pixels, pixels}, pad, window, stride);
}

TEST(Padding, SamePutsAnOddPixelAtTheBottomAndRight) {
  EXPECT_EQ(Pads(224, Pad::kSame, 3, 2), (Padding{0, 0, 1, 1}));
  EXPECT_EQ(Pads(225, Pad::kSame, 3, 2), (Padding{1, 1, 1, 1}));
  EXPECT_EQ(Pads(28, Pad::kSame, 5, 1), (Padding{2, 2, 2, 2}));
  EXPECT_EQ(Pads(28, Pad::kSame, 2, 1), (Padding{0, 0, 1, 1}));
  EXPECT_EQ(Pads(17, Pad::kSame, Window(1, 7), 1), (Padding{0, 3, 0, 3}));
}

TEST(Padding, IsNotNegativeIfTheStrideSkipsPixels) {
  EXPECT_EQ(Pads(6, Pad::kSame, 1, 2), (Padding{0, 0, 0, 0}));
}

TEST(Padding, FixedDoesNotDependOnTheImageSize) {
  EXPECT_EQ(Pads(224, Pad::kFixed, 7, 2), (Padding{3, 3, 3, 3}));
  EXPECT_EQ(Pads(97, Pad::kFixed, 7, 2), (Padding{3, 3, 3, 3}));
  EXPECT_EQ(Pads(97, Pad::kFixed, 4, 2), (Padding{1, 1, 2, 2}));
  EXPECT_EQ(Pads(97, Pad::kValid, 7, 2), Padding{});
}

// The image is 1 2 / 3 4, with zeros to the right and below.
TEST(Conv2d, EvenWindowIsPaddedAtTheBottomAndRight) {
  const auto y = RunLayer(
      {1, 1, 2, 2}, {}, {{"c/weights", {1, 10, 100, 1000}}, {"c/biases", {5}}},
      [](NetBuilder& b, ValueId x) { return Conv2d(b, x, "c", {.outputs = 1, .window = 2}, {}); });
  EXPECT_THAT(y, ElementsAre(4321 + 5, 402 + 5, 43 + 5, 4 + 5));
}

// The pixels are (1,2) and (3,4), and the windows have one pixel. Each channel is multiplied by its
// two factors; then the products are summed.
TEST(SeparableConv2d, MultipliesChannelsThenMixesThem) {
  const std::map<std::string, std::vector<float>> variables{
      {"s/depthwise_weights", {1, 10, 100, 1000}},
      {"s/pointwise_weights", {1, 1, 1, -1}},
      {"s/biases", {0.5}}};
  const LayerOptions linear{.activation = Activation::kNone};
  const auto mixed = RunLayer({1, 2, 1, 2}, {}, variables, [&](NetBuilder& b, ValueId x) {
    return SeparableConv2d(b, x, "s", {.outputs = 1, .window = 1, .multiplier = 2}, linear);
  });
  EXPECT_THAT(mixed, ElementsAre(1 + 10 + 200 - 2000 + 0.5, 3 + 30 + 400 - 4000 + 0.5));
}

TEST(SeparableConv2d, IsDepthwiseOnlyWithoutOutputs) {
  const auto y = RunLayer({1, 2, 1, 2}, {}, {{"s/depthwise_weights", {1, 10}}, {"s/biases", {0.5}}},
                          [](NetBuilder& b, ValueId x) {
                            return SeparableConv2d(b, x, "s", {.outputs = 0, .window = 1}, {});
                          });
  EXPECT_THAT(y, ElementsAre(1.5, 20.5, 3.5, 40.5));
}

TEST(Conv2d, Relu6ClampsBothEnds) {
  const LayerOptions options{.activation = Activation::kRelu6};
  const auto y = RunLayer({1, 1, 1, 4}, {}, {{"c/weights", {3}}, {"c/biases", {-4}}},
                          [&](NetBuilder& b, ValueId x) {
                            return Conv2d(b, x, "c", {.outputs = 1, .window = 1}, options);
                          });
  EXPECT_THAT(y, ElementsAre(0, 2, 5, 6));
}

TEST(Conv2d, HasNoBiasesIfItHasBatchNorm) {
  Graph graph;
  NetBuilder b(graph, {});
  const ValueId x = graph.AddInput("images", {1, 3, 8, 8}, DType::kF32);
  const auto scope = b.Enter("net");
  const LayerOptions options{.l2_weights = true, .batch_norm = BatchNormOptions{}};
  Conv2d(b, x, "c", {.outputs = 4, .window = {1, 3}}, options);
  LayerOptions linear = options.Linear();
  linear.l2_biases = true;
  Conv2d(b, x, "d", {.outputs = 4, .window = 1}, linear);
  std::vector<std::string> names;
  for (const Variable& v : graph.variables()) {
    names.push_back(v.name + " " + v.tf_shape.ToString() + (v.l2_regularized ? " l2" : "") +
                    (v.trainable ? "" : " fixed"));
  }
  EXPECT_THAT(names, ElementsAre("net/c/weights [1,3,3,4] l2", "net/c/BatchNorm/beta [4]",
                                 "net/c/BatchNorm/moving_mean [4] fixed",
                                 "net/c/BatchNorm/moving_variance [4] fixed",
                                 "net/d/weights [1,1,3,4] l2", "net/d/biases [4] l2"));
}

TEST(BatchNorm, UsesMovingStatisticsForInference) {
  const auto y = RunLayer(
      {1, 1, 1, 3}, {},
      {{"n/gamma", {2}}, {"n/beta", {10}}, {"n/moving_mean", {1}}, {"n/moving_variance", {4}}},
      [](NetBuilder& b, ValueId x) { return BatchNorm(b, x, "n", {.epsilon = 5, .gamma = true}); });
  EXPECT_THAT(y, Pointwise(DoubleNear(1e-12), {10.0, 10 + 2.0 / 3, 10 + 4.0 / 3}));
}

TEST(BatchNorm, UsesBatchStatisticsInTrainingAndRaisesASmallEpsilon) {
  const auto y = RunLayer({2, 1, 1, 1}, {.training = true}, {}, [](NetBuilder& b, ValueId x) {
    return BatchNorm(b, x, "n", {.epsilon = 1e-30});
  });
  const double rstd = 1 / std::sqrt(0.25 + 1.001e-5);  // the values 1, 2 have the variance 0.25
  EXPECT_THAT(y, Pointwise(DoubleNear(1e-12), {-0.5 * rstd, 0.5 * rstd}));
}

TEST(Pool2d, AverageDividesByTheNumberOfRealPixels) {
  const auto y = RunLayer({1, 1, 3, 3}, {}, {}, [](NetBuilder& b, ValueId x) {
    return AveragePool2d(b, x, "p", {.window = 3, .stride = 2, .pad = Pad::kSame});
  });
  EXPECT_THAT(y, ElementsAre((1 + 2 + 4 + 5) / 4.0, (2 + 3 + 5 + 6) / 4.0, (4 + 5 + 7 + 8) / 4.0,
                             (5 + 6 + 8 + 9) / 4.0));
}

TEST(Pool2d, GlobalAverageIsTheMeanOfEachChannel) {
  const auto y = RunLayer({1, 2, 2, 2}, {}, {}, [](NetBuilder& b, ValueId x) {
    return Squeeze(b, GlobalAveragePool(b, x, "p"), "s");
  });
  EXPECT_THAT(y, ElementsAre(4, 5));  // the means of 1 3 5 7 and 2 4 6 8
}

TEST(Dropout, DropsElementsAndScalesTheOthers) {
  const auto layer = [](NetBuilder& b, ValueId x) { return Dropout(b, x, "d", 0.5); };
  const auto trained = RunLayer({1, 1, 1, 64}, {.training = true}, {}, layer);
  int kept = 0;
  for (size_t i = 0; i < trained.size(); ++i) {
    EXPECT_THAT(trained[i], testing::AnyOf(0, 2 * static_cast<double>(i + 1)));
    kept += trained[i] != 0;
  }
  EXPECT_GT(kept, 10);
  EXPECT_LT(kept, 54);
}

TEST(Squeeze, RejectsAMapOfSeveralPixels) {
  EXPECT_THROW(
      RunLayer({1, 1, 2, 2}, {}, {}, [](NetBuilder& b, ValueId x) { return Squeeze(b, x, "s"); }),
      InternalError);
}

TEST(MakeDivisible, ReducesByAtMostATenth) {
  EXPECT_EQ(MakeDivisible(1), 8);
  EXPECT_EQ(MakeDivisible(11.2), 16);  // 8 is less than 0.9 * 11.2
  EXPECT_EQ(MakeDivisible(12), 16);
  EXPECT_EQ(MakeDivisible(32 * 1.4), 48);
  EXPECT_EQ(MakeDivisible(64 * 0.35), 24);
  EXPECT_EQ(MakeDivisible(35), 32);
}

// Channel c (1 to 8) has the pixels c and c + 8. The means of the channels sum to 68. The gate is
// relu6(x + 3) * 0.16667 with x = 8 * 68 / 512.
TEST(SqueezeExcite, MultipliesChannelsByGates) {
  const auto y = RunLayer(
      {1, 8, 1, 2}, {}, {{"e/Conv/weights", {1}}, {"e/Conv_1/weights", {1.0F / 512}}},
      [](NetBuilder& b, ValueId x) { return SqueezeExcite(b, x, "e", {.l2_weights = true}); });
  const double gate = (8 * 68 / 512.0 + 3) * 0.16667;
  ASSERT_EQ(y.size(), 16u);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], static_cast<double>(i + 1) * gate, 1e-12);
}

// Returns the number of residual additions in a block whose input has 8 channels and
// `pixels` x `pixels` pixels.
int64_t Residuals(int64_t pixels, const InvertedResidualGeometry& geometry) {
  Graph graph;
  NetBuilder b(graph, {});
  const ValueId x = graph.AddInput("images", {1, 8, pixels, pixels}, DType::kF32);
  const InvertedResidualParts parts = InvertedResidual(b, x, "block", geometry, {});
  EXPECT_EQ(parts.expansion != kNone, geometry.expansion > 8);
  EXPECT_EQ(parts.depthwise != kNone, !geometry.fused);
  return std::count_if(graph.nodes().begin(), graph.nodes().end(),
                       [](const Node& node) { return node.kind == op::kAdd; });
}

TEST(InvertedResidual, AddsItsInputIfStrideAndShapeAllow) {
  EXPECT_EQ(Residuals(4, {.expansion = 16, .outputs = 8}), 1);
  EXPECT_EQ(Residuals(4, {.expansion = 16, .outputs = 8, .fused = true}), 1);
  EXPECT_EQ(Residuals(4, {.expansion = 8, .outputs = 8}), 1);
  EXPECT_EQ(Residuals(4, {.expansion = 16, .outputs = 16}), 0);
  EXPECT_EQ(Residuals(4, {.expansion = 16, .outputs = 8, .residual = false}), 0);
  // A map of one pixel keeps its size with any stride, but only a stride of 1 allows the addition.
  EXPECT_EQ(Residuals(1, {.expansion = 16, .outputs = 8, .stride = 2}), 0);
}

// A net of two dense layers on the image. One of them is the auxiliary head.
NetOutput TwoHeads(NetBuilder& b, ValueId images) {
  const ValueId x = Flatten(b, images, "flat");
  const LayerOptions linear{.weights = Initializer::Constant(0), .activation = Activation::kNone};
  return {.logits = FullyConnected(b, x, "main", b.num_classes(), linear),
          .aux_logits = FullyConnected(b, x, "aux", b.num_classes(), linear)};
}

TEST(BuildModel, AddsTheWeightedAuxiliaryLossInTraining) {
  const NetEntry net{.name = "two_heads",
                     .build = TwoHeads,
                     .image_size = 2,
                     .num_parameters = 0,
                     .preprocessing = ""};
  for (bool training : {true, false}) {
    const ModelOptions options{
        .batch_size = 2, .num_classes = 4, .training = training, .compute = DType::kF64};
    const Model model = BuildModel(net, options);
    const auto backend = MakeReferenceBackend(1);
    Executable executable(Compile(*model.graph, *backend));
    const auto store = executable.MakeStore();
    store->Initialize(1);
    executable.Bind(*store);
    double* weights = executable.Input("weights").as<double>();
    weights[0] = 1;  // the second sample is padding, with weight 0
    weights[1] = 0;
    executable.Run({});
    std::map<std::string, double> losses;
    for (const auto& [name, value] : model.graph->losses()) {
      losses[name] = executable.Output(value)[0];
    }
    EXPECT_NEAR(losses.at("softmax_cross_entropy_loss"), std::log(4), 1e-12);
    EXPECT_EQ(losses.count("aux_loss"), training ? 1u : 0u);
    if (training) {
      EXPECT_NEAR(losses.at("aux_loss"), 0.4 * std::log(4), 1e-12);
    }
  }
}

}  // namespace
}  // namespace carole::nets
