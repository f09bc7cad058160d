#include "src/export/keras_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "nets/nets.h"
#include "tests/support/optimizer_options.h"

namespace carole::train {
namespace {

using carole::testing::With;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::SizeIs;

std::optional<io::KerasModel> Make(std::string_view net, bool training, int64_t image_size = 0) {
  const nets::Model model = nets::BuildModel(
      nets::FindNet(net),
      {.batch_size = 2, .image_size = image_size, .num_classes = 10, .training = training});
  return MakeKerasModel(*model.graph, model.logits, std::string(net));
}

// The layers of the model, by name.
std::map<std::string, json> LayersOf(const io::KerasModel& model) {
  std::map<std::string, json> layers;
  const json config = json::parse(model.config).at("config");
  for (const json& layer : config.at("layers")) layers[layer.at("name")] = layer;
  EXPECT_THAT(layers, SizeIs(config.at("layers").size())) << "two layers of one name";
  return layers;
}

TEST(KerasModel, ListsLayersInOrder) {
  const auto model = Make("lenet", true);
  ASSERT_TRUE(model);
  EXPECT_THAT(model->layers,
              ElementsAre("LeNet__conv1", "LeNet__conv2", "LeNet__fc3", "LeNet__fc4"));
  const json config = json::parse(model->config).at("config");
  EXPECT_EQ(config.at("name"), "lenet");
  EXPECT_EQ(config.at("output_layers").dump(), R"([["predictions",0,0]])");
  std::vector<std::string> classes;
  for (const json& layer : config.at("layers")) classes.push_back(layer.at("class_name"));
  EXPECT_THAT(classes, ElementsAre("InputLayer", "Conv2D", "ReLU", "MaxPooling2D", "Conv2D", "ReLU",
                                   "MaxPooling2D", "Flatten", "Dense", "ReLU", "Dropout", "Dense",
                                   "Softmax"));
}

TEST(KerasModel, HasTheNamesAndRatesOfTheKerasMnistExample) {
  const auto model = Make("mnist_keras", true);
  ASSERT_TRUE(model);
  const std::map<std::string, json> layers = LayersOf(*model);
  for (const char* name : {"flatten", "dense", "dropout", "dense_1"})
    EXPECT_TRUE(layers.contains(name)) << name;
  EXPECT_EQ(layers.at("dropout").at("config").at("rate"), 0.2);
}

TEST(KerasModel, TrainingConfigDescribesTheOptimizer) {
  const auto optimizer = [](const char* name, const optim::OptimizerOptions& options) {
    const std::string text = MakeKerasTrainingConfig(optim::FindOptimizer(name).plan(options), 0.5);
    if (text.empty()) return text;
    const json training = json::parse(text);
    EXPECT_EQ(training.at("loss"), "sparse_categorical_crossentropy");
    EXPECT_TRUE(training.at("loss_weights").is_null());
    return training.at("optimizer_config").dump();
  };
  EXPECT_EQ(
      optimizer("sgd", {}),
      R"({"class_name":"SGD","config":{"learning_rate":0.5,"momentum":0.0,"nesterov":false}})");
  EXPECT_EQ(
      optimizer("momentum", With({.momentum = 0.75}, "momentum", {{"nesterov", 1}})),
      R"({"class_name":"SGD","config":{"learning_rate":0.5,"momentum":0.75,"nesterov":true}})");
  EXPECT_EQ(optimizer("rmsprop",
                      With({}, "rmsprop", {{"rmsprop_momentum", 0.5}, {"rmsprop_decay", 0.75}})),
            R"({"class_name":"RMSprop","config":{"epsilon":1.0,"learning_rate":0.5,"momentum":0.5,)"
            R"("rho":0.75}})");
  EXPECT_EQ(optimizer("adam", With({.opt_epsilon = 0.25}, "adam",
                                   {{"adam_beta1", 0.5}, {"adam_beta2", 0.75}})),
            R"({"class_name":"Adam","config":{"beta_1":0.5,"beta_2":0.75,"epsilon":0.25,)"
            R"("learning_rate":0.5}})");
  EXPECT_EQ(optimizer("lars", {}), "");
}

// Users of the Keras model pass normalized images, even if the net was trained on bytes.
TEST(KerasModel, LeavesTheNormalizationOfBytesOut) {
  const nets::Model model = nets::BuildModel(nets::FindNet("lenet"),
                                             {.batch_size = 2,
                                              .num_classes = 10,
                                              .training = true,
                                              .normalize = NormalizeAttributes{.multiply = 0.5f}});
  EXPECT_EQ(MakeKerasModel(*model.graph, model.logits, "lenet")->config,
            Make("lenet", true)->config);
}

TEST(KerasModel, DescribesEachLayer) {
  const auto layers = LayersOf(*Make("lenet", true));
  EXPECT_EQ(layers.at("images").at("config").at("batch_input_shape").dump(), "[null,28,28,1]");
  EXPECT_EQ(layers.at("images").at("inbound_nodes").dump(), "[]");
  EXPECT_EQ(layers.at("LeNet__conv1").dump(),
            R"({"class_name":"Conv2D","config":{"activation":"linear","data_format":)"
            R"("channels_last","dilation_rate":[1,1],"dtype":"float32","filters":32,"groups":1,)"
            R"("kernel_size":[5,5],"name":"LeNet__conv1","padding":"same","strides":[1,1],)"
            R"("use_bias":true},"inbound_nodes":[[["images",0,0,{}]]],"name":"LeNet__conv1"})");
  EXPECT_EQ(layers.at("LeNet__fc3").at("config").at("units"), 1024);
  EXPECT_EQ(layers.at("LeNet__dropout3__dropout").at("config").at("rate"), 0.5);
}

TEST(KerasModel, AddsAPaddingLayerIfThePaddingIsNotSame) {
  const auto layers = LayersOf(*Make("resnet_v1_50", false, 64));
  EXPECT_EQ(layers.at("resnet_v1_50__conv1__pad").at("config").at("padding").dump(),
            "[[3,3],[3,3]]");
  EXPECT_EQ(layers.at("resnet_v1_50__conv1").at("config").at("padding"), "valid");
  EXPECT_EQ(layers.at("resnet_v1_50__pool1__pool").at("config").at("padding"), "same");
  const json& norm = layers.at("resnet_v1_50__conv1__BatchNorm").at("config");
  EXPECT_EQ(norm.at("epsilon"), 1.001e-5);
  EXPECT_EQ(norm.at("momentum"), 0.997);
  EXPECT_TRUE(norm.at("scale"));
}

// Layers with a longer path to the output come first, in any order of construction. So the shortcut
// of a unit, which is one convolution, comes just before the last convolution of the other branch.
TEST(KerasModel, SortsBranchesAsKerasDoes) {
  const std::vector<std::string> layers = Make("resnet_v1_50", false, 64)->layers;
  const auto index = [&](const std::string& name) {
    const std::string unit = "resnet_v1_50__block1__unit_1__bottleneck_v1__";
    return std::ranges::find(layers, unit + name) - layers.begin();
  };
  EXPECT_LT(index("conv1"), index("conv2"));
  EXPECT_LT(index("conv2"), index("shortcut"));
  EXPECT_EQ(index("shortcut") + 1, index("conv3"));
}

TEST(KerasModel, LeavesTheAuxiliaryHeadOut) {
  const auto training = Make("inception_v3", true, 139),
             inference = Make("inception_v3", false, 139);
  EXPECT_EQ(training->layers, inference->layers);
  for (const std::string& layer : training->layers)
    EXPECT_EQ(layer.find("AuxLogits"), layer.npos) << layer;
}

TEST(KerasModel, JoinsTheHalvesOfSeparableConvolutions) {
  const auto layers = LayersOf(*Make("inception_v2", false, 64));
  const json& layer = layers.at("InceptionV2__Conv2d_1a_7x7");
  EXPECT_EQ(layer.at("class_name"), "SeparableConv2D");
  EXPECT_EQ(layer.at("config").at("depth_multiplier"), 8);
  EXPECT_EQ(layer.at("config").at("filters"), 64);
  EXPECT_EQ(layer.at("config").at("strides").dump(), "[2,2]");
}

TEST(KerasModel, IsMissingIfKerasLacksALayer) { EXPECT_EQ(Make("cifarnet", false), std::nullopt); }

TEST(KerasModel, CanDescribeEveryOtherNet) {
  for (const nets::NetEntry& net : nets::kNets) {
    if (net.name == "cifarnet") continue;
    const nets::Model model = nets::BuildModel(net, {.batch_size = 1});
    const auto keras = MakeKerasModel(*model.graph, model.logits, std::string(net.name));
    ASSERT_TRUE(keras) << net.name;
    EXPECT_FALSE(keras->layers.empty()) << net.name;
  }
}

}  // namespace
}  // namespace carole::train
