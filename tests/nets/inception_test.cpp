// Properties of the Inception nets that the golden files do not cover: the structure of Inception
// v4, the auxiliary heads, and the initializers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nets/nets.h"

namespace carole::nets {
namespace {

using testing::ElementsAreArray;

Model Build(const char* net, const ModelOptions& options = {.batch_size = 1, .training = true}) {
  return BuildModel(FindNet(net), options);
}

const Variable* Find(const Model& model, const std::string& name) {
  for (const Variable& v : model.graph->variables()) {
    if (v.name == name) return &v;
  }
  return nullptr;
}

// Returns the number of elements of the trainable variables whose names contain `part`.
int64_t Parameters(const Model& model, const std::string& part) {
  int64_t sum = 0;
  for (const Variable& v : model.graph->variables()) {
    if (v.trainable && v.name.find(part) != std::string::npos) sum += v.shape.size();
  }
  return sum;
}

TEST(InceptionV4, HasTheEndPointsAndShapesOfThePaper) {
  const Model model = Build("inception_v4");
  std::vector<std::string> want{"Conv2d_1a_3x3 149x32", "Conv2d_2a_3x3 147x32",
                                "Conv2d_2b_3x3 147x64", "Mixed_3a 73x160",
                                "Mixed_4a 71x192",      "Mixed_5a 35x384"};
  for (char c : {'b', 'c', 'd', 'e'}) want.push_back(fmt::format("Mixed_5{} 35x384", c));
  for (char c : {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}) {
    want.push_back(fmt::format("Mixed_6{} 17x1024", c));
  }
  for (char c : {'a', 'b', 'c', 'd'}) want.push_back(fmt::format("Mixed_7{} 8x1536", c));
  for (const char* end : {"AuxLogits 1000", "global_pool 1x1536", "PreLogitsFlatten 1536",
                          "Logits 1000", "Predictions 1000"}) {
    want.emplace_back(end);
  }
  std::vector<std::string> got;
  for (const auto& [name, value] : model.graph->end_points()) {
    const Shape& s = model.graph->shape(value);
    got.push_back(s.rank() == 4 ? fmt::format("{} {}x{}", name, s[2], s[1])
                                : fmt::format("{} {}", name, s[1]));
  }
  EXPECT_THAT(got, ElementsAreArray(want));
}

TEST(Inception, AuxiliaryHeadsAlwaysExistAndTheirLossesOnlyInTraining) {
  const std::pair<const char*, int64_t> nets[] = {
      {"inception_v3", 3'325'800}, {"inception_v4", 3'358'568}, {"inception_resnet_v2", 3'366'760}};
  for (const auto& [net, parameters] : nets) {
    for (bool training : {false, true}) {
      const Model model = Build(net, {.batch_size = 2, .training = training});
      EXPECT_EQ(Parameters(model, "/AuxLogits/"), parameters) << net;
      EXPECT_EQ(model.graph->shape(model.aux_logits), (Shape{2, 1000})) << net;
      ASSERT_EQ(model.graph->losses().size(), training ? 2u : 1u) << net;
      EXPECT_EQ(model.graph->losses()[0].first == "aux_loss", training) << net;
    }
  }
}

// The convolution over the whole map depends on the size of the images. As in TF-Slim, v3 names it
// after its window, and the other nets do not.
TEST(Inception, AuxiliaryHeadsDependOnTheImageSize) {
  const struct {
    const char* net;
    int64_t image_size;
    const char* weights;
    int64_t window;
  } rows[] = {{"inception_v3", 151, "InceptionV3/AuxLogits/Conv2d_2a_1x1/weights", 1},
              {"inception_v4", 151, "InceptionV4/AuxLogits/Conv2d_2a/weights", 1},
              {"inception_v4", 299, "InceptionV4/AuxLogits/Conv2d_2a/weights", 5},
              {"inception_resnet_v2", 151, "InceptionResnetV2/AuxLogits/Conv2d_2a_5x5/weights", 1}};
  for (const auto& [net, image_size, weights, window] : rows) {
    const Model model = Build(net, {.batch_size = 1, .image_size = image_size});
    const Variable* variable = Find(model, weights);
    ASSERT_NE(variable, nullptr) << weights;
    EXPECT_EQ(variable->tf_shape, (Shape{window, window, 128, 768})) << weights;
  }
}

TEST(Inception, HasTheInitializersOfTfSlim) {
  struct Case {
    const char *net, *variable;
    Initializer want;
  };
  const Case cases[] = {
      {"inception_v1", "InceptionV1/Mixed_5c/Branch_3/Conv2d_0b_1x1/weights",
       Initializer::TruncatedNormal(0.01)},
      {"inception_v1", "InceptionV1/Logits/Conv2d_0c_1x1/weights", Initializer::He()},
      {"inception_v2", "InceptionV2/Conv2d_1a_7x7/depthwise_weights",
       Initializer::TruncatedNormal(1)},
      {"inception_v2", "InceptionV2/Conv2d_2b_1x1/weights", Initializer::TruncatedNormal(0.1)},
      {"inception_v2", "InceptionV2/Mixed_3b/Branch_0/Conv2d_0a_1x1/weights", Initializer::He()},
      {"inception_v2", "InceptionV2/Mixed_4a/Branch_0/Conv2d_0a_1x1/weights",
       Initializer::TruncatedNormal(0.09)},
      {"inception_v2", "InceptionV2/Mixed_5c/Branch_3/Conv2d_0b_1x1/weights",
       Initializer::TruncatedNormal(0.1)},
      {"inception_v3", "InceptionV3/AuxLogits/Conv2d_2a_5x5/weights",
       Initializer::TruncatedNormal(0.01)},
      {"inception_v3", "InceptionV3/AuxLogits/Conv2d_2b_1x1/weights",
       Initializer::TruncatedNormal(0.001)},
      {"inception_v4", "InceptionV4/AuxLogits/Conv2d_2a/weights", Initializer::He()},
      {"inception_v4", "InceptionV4/AuxLogits/Aux_logits/weights", Initializer::XavierUniform()},
      {"inception_v4", "InceptionV4/Logits/Logits/weights", Initializer::XavierUniform()},
      {"inception_resnet_v2", "InceptionResnetV2/Conv2d_7b_1x1/weights",
       Initializer::XavierUniform()},
  };
  for (const Case& c : cases) {
    const Model model = Build(c.net);
    const Variable* variable = Find(model, c.variable);
    ASSERT_NE(variable, nullptr) << c.variable;
    EXPECT_EQ(variable->initializer.kind, c.want.kind) << c.variable;
    EXPECT_EQ(variable->initializer.value, c.want.value) << c.variable;
  }
}

}  // namespace
}  // namespace carole::nets
