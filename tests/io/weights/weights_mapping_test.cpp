#include "io/weights/weights_mapping.h"

#include <map>
#include <numeric>

#include "io/weights/open_weights.h"
#include "tests/io/damage.h"
#include "tests/io/read_values.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// A file with given tensors. Element i of tensor k is 100 k + i.
class FakeFile : public WeightsSource {
 public:
  explicit FakeFile(const std::vector<VariableSpec>& tensors) {
    for (const VariableSpec& tensor : tensors) {
      names_.push_back(tensor.name);
      shapes_[tensor.name] = tensor.shape;
    }
  }
  const std::string& path() const override { return path_; }
  const std::vector<std::string>& names() const override { return names_; }
  bool Has(const std::string& name) const override { return shapes_.contains(name); }
  Shape shape(const std::string& name) const override { return shapes_.at(name); }
  void Read(const std::string& name, std::span<float> out) const override {
    const auto k = std::ranges::find(names_, name) - names_.begin();
    std::iota(out.begin(), out.end(), static_cast<float>(100 * k));
  }

 private:
  const std::string path_ = "fake.h5";
  std::vector<std::string> names_;
  std::map<std::string, Shape> shapes_;
};

TEST(MappedWeights, KeepsNamesThatTheFileHas) {
  const FakeFile file({{"net/a/weights", {2}}, {"other", {3}}});
  const std::vector<VariableSpec> wanted{{"net/a/weights", {2}}, {"net/b/weights", {2}}};
  const MappedWeights mapped(file, wanted);
  EXPECT_THAT(mapped.names(), ElementsAre("net/a/weights", "other"));
  EXPECT_THAT(mapped.report(), IsEmpty());
  EXPECT_FALSE(mapped.Has("net/b/weights"));
}

TEST(MappedWeights, AddsTheScopeOfTheImagenetResnet) {
  const FakeFile file({{"conv2d/kernel", {1, 1, 2, 2}},
                       {"conv2d/kernel/Momentum", {1, 1, 2, 2}},
                       {"batch_normalization/gamma", {2}}});
  const std::vector<VariableSpec> wanted{{"resnet/conv2d/kernel", {1, 1, 2, 2}},
                                         {"resnet/batch_normalization/gamma", {2}}};
  const MappedWeights mapped(file, wanted);
  EXPECT_THAT(mapped.names(), ElementsAre("resnet/conv2d/kernel", "resnet/conv2d/kernel/Momentum",
                                          "resnet/batch_normalization/gamma"));
  EXPECT_THAT(ReadValues(mapped, "resnet/conv2d/kernel/Momentum"), ElementsAre(100, 101, 102, 103));
  EXPECT_THAT(
      mapped.report(),
      ElementsAre("2 of 2 variables found under the names of TensorFlow 2's ImageNet ResNet"));
}

TEST(MappedWeights, FindsKerasLayersNamedByScopes) {
  const FakeFile file({{"net__conv1/kernel", {3, 3, 1, 2}},
                       {"net__conv1/bias", {2}},
                       {"net__dw/kernel", {3, 3, 2, 1}},
                       {"net__conv1__BatchNorm/beta", {2}}});
  const std::vector<VariableSpec> wanted{{"net/conv1/weights", {3, 3, 1, 2}},
                                         {"net/conv1/biases", {2}},
                                         {"net/dw/depthwise_weights", {3, 3, 2, 1}},
                                         {"net/conv1/BatchNorm/beta", {2}}};
  const MappedWeights mapped(file, wanted);
  EXPECT_THAT(mapped.names(), ElementsAre("net/conv1/weights", "net/conv1/biases",
                                          "net/dw/depthwise_weights", "net/conv1/BatchNorm/beta"));
}

TEST(MappedWeights, FindsTheNetsOfKerasApplications) {
  const std::vector<std::pair<std::string, std::string>> pairs{
      // VGG
      {"block3_conv2/kernel", "vgg_16/conv3/conv3_2/weights"},
      {"fc2/bias", "vgg_19/fc7/biases"},
      // MobileNet
      {"conv1_bn/gamma", "MobilenetV1/Conv2d_0/BatchNorm/gamma"},
      {"conv_dw_12/kernel", "MobilenetV1/Conv2d_12_depthwise/depthwise_weights"},
      {"conv_pw_3_bn/moving_variance", "MobilenetV1/Conv2d_3_pointwise/BatchNorm/moving_variance"},
      {"conv_preds/bias", "MobilenetV1/Logits/Conv2d_1c_1x1/biases"},
      // MobileNetV2
      {"bn_Conv1/beta", "MobilenetV2/Conv/BatchNorm/beta"},
      {"expanded_conv_depthwise/depthwise_kernel",
       "MobilenetV2/expanded_conv/depthwise/depthwise_weights"},
      {"expanded_conv_project_BN/gamma", "MobilenetV2/expanded_conv/project/BatchNorm/gamma"},
      {"block_16_expand/kernel", "MobilenetV2/expanded_conv_16/expand/weights"},
      {"block_1_depthwise_BN/moving_mean",
       "MobilenetV2/expanded_conv_1/depthwise/BatchNorm/moving_mean"},
      {"Conv_1_bn/beta", "MobilenetV2/Conv_1/BatchNorm/beta"},
      {"predictions/kernel", "MobilenetV2/Logits/Conv2d_1c_1x1/weights"},
      {"Logits/bias", "MobilenetV2/Logits/Conv2d_1c_1x1/biases"},
      // ResNet50 of Keras 1 and 2.0
      {"conv1/kernel", "resnet_v1_50/conv1/weights"},
      {"bn_conv1/gamma", "resnet_v1_50/conv1/BatchNorm/gamma"},
      {"res2a_branch1/kernel", "resnet_v1_50/block1/unit_1/bottleneck_v1/shortcut/weights"},
      {"bn2a_branch1/beta", "resnet_v1_50/block1/unit_1/bottleneck_v1/shortcut/BatchNorm/beta"},
      {"res4f_branch2b/kernel", "resnet_v1_50/block3/unit_6/bottleneck_v1/conv2/weights"},
      {"bn5c_branch2c/moving_variance",
       "resnet_v1_50/block4/unit_3/bottleneck_v1/conv3/BatchNorm/moving_variance"},
      {"fc1000/bias", "resnet_v1_50/logits/biases"},
      // ResNet
      {"probs/kernel", "resnet_v1_152/logits/weights"},
      {"conv1_conv/kernel", "resnet_v1_50/conv1/weights"},
      {"conv2_block1_0_conv/kernel", "resnet_v1_50/block1/unit_1/bottleneck_v1/shortcut/weights"},
      {"conv5_block3_2_bn/beta", "resnet_v1_101/block4/unit_3/bottleneck_v1/conv2/BatchNorm/beta"},
  };
  for (const auto& [keras, slim] : pairs) {
    // By itself, and as a model inside of other models.
    for (const std::string outer : {"", "net/", "outer/net/"}) {
      const FakeFile file({{"first", {1}}, {outer + keras, {2}}});
      const std::vector<VariableSpec> wanted{{slim, {2}}};
      const MappedWeights mapped(file, wanted);
      ASSERT_TRUE(mapped.Has(slim)) << slim;
      EXPECT_THAT(ReadValues(mapped, slim), UnorderedElementsAre(100, 101)) << slim;
      EXPECT_EQ(mapped.misfit_hint(), "");
    }
  }
}

TEST(MappedWeights, DoesNotChooseBetweenTwoInnerModels) {
  const std::vector<VariableSpec> wanted{{"vgg_16/conv1/conv1_1/biases", {2}}};
  const std::string variable = wanted[0].name;
  const FakeFile two({{"left/block1_conv1/bias", {2}}, {"right/block1_conv1/bias", {2}}});
  const MappedWeights ambiguous(two, wanted);
  EXPECT_FALSE(ambiguous.Has(variable));
  EXPECT_THAT(ambiguous.misfit_hint(),
              HasSubstr("such as left/block1_conv1/bias, right/block1_conv1/bias; in Keras, save"));
  const FakeFile outer({{"left/block1_conv1/bias", {2}}, {"block1_conv1/bias", {2}}});
  EXPECT_THAT(ReadValues(MappedWeights(outer, wanted), variable), ElementsAre(100, 101));
  // The model that has more of the net.
  const FakeFile before(
      {{"block1_conv1/bias", {2}}, {"net/block1_conv1/bias", {2}}, {"net/block1_conv2/bias", {2}}});
  const std::vector<VariableSpec> both{wanted[0], {"vgg_16/conv1/conv1_2/biases", {2}}};
  EXPECT_THAT(ReadValues(MappedWeights(before, both), variable), ElementsAre(100, 101));
  // A layer that was renamed after it was built.
  const FakeFile renamed(
      {{"block1_conv1/conv2d_7/bias", {2}}, {"block1_conv2/conv2d_8/bias", {2}}});
  EXPECT_THAT(ReadValues(MappedWeights(renamed, wanted), variable), ElementsAre(0, 1));
}

// As tf_keras writes .weights.h5. The last layer is that of another model.
TEST(MappedWeights, MatchesLayersWithoutNamesByTheirOrder) {
  std::vector<VariableSpec> tensors{{"dense/kernel", {4, 3}},
                                    {"net/conv2d_1/kernel", {1, 1, 2, 4}},
                                    {"net/conv2d/kernel", {3, 3, 3, 2}},
                                    {"net/batch_normalization/beta", {2}},
                                    {"net/depthwise_conv2d/depthwise_kernel", {3, 3, 2, 1}},
                                    {"net/batch_normalization_1/beta", {2}}};
  const std::string scope = "MobilenetV1/Conv2d_";
  const std::vector<VariableSpec> wanted{
      {scope + "0/weights", {3, 3, 3, 2}},
      {scope + "0/BatchNorm/beta", {2}},
      {scope + "1_depthwise/depthwise_weights", {3, 3, 2, 1}},
      {scope + "1_depthwise/BatchNorm/beta", {2}},
      {scope + "1_pointwise/weights", {1, 1, 2, 4}},
      {"MobilenetV1/Logits/Conv2d_1c_1x1/weights", {1, 1, 4, 9}}};
  const FakeFile file(tensors);
  const MappedWeights mapped(file, wanted);
  EXPECT_EQ(ReadValues(mapped, wanted[0].name)[0], 200);
  EXPECT_EQ(ReadValues(mapped, wanted[3].name)[0], 500);
  EXPECT_EQ(ReadValues(mapped, wanted[4].name)[0], 100);
  EXPECT_FALSE(mapped.Has(wanted[5].name));
  EXPECT_THAT(mapped.report(), ElementsAre(HasSubstr("5 of 6 variables found")));
  tensors[1].shape = {1, 1, 2, 5};  // of another net
  const FakeFile other(tensors);
  EXPECT_FALSE(MappedWeights(other, wanted).Has(wanted[0].name));
  // A net with other classes. Keras's MobileNetV2 ends with a dense layer.
  const std::vector<VariableSpec> v2{{"MobilenetV2/Conv/weights", {3, 3, 3, 2}},
                                     {"MobilenetV2/Logits/Conv2d_1c_1x1/weights", {1, 1, 2, 9}}};
  const FakeFile five_classes({{"conv2d/kernel", {3, 3, 3, 2}}, {"dense/kernel", {2, 5}}});
  EXPECT_EQ(MappedWeights(five_classes, v2).shape(v2[1].name), (Shape{2, 5}));
}

// VGG and ResNet v1 of keras.applications read images in BGR order, from preprocess_input().
TEST(MappedWeights, ReversesTheInputChannelsOfBgrFilters) {
  const Shape shape{1, 2, 3, 2};
  for (const auto& [keras, slim] : {std::pair{"block1_conv1", "vgg_19/conv1/conv1_1"},
                                    std::pair{"conv1_conv", "resnet_v1_50/conv1"}}) {
    const std::string variable = std::string(slim) + "/weights";
    const std::string kernel = std::string(keras) + "/kernel";
    const FakeFile file({{kernel, shape}, {kernel + "/Momentum", shape}});
    const MappedWeights mapped(file, std::vector<VariableSpec>{{variable, shape}});
    EXPECT_THAT(ReadValues(mapped, variable), ElementsAre(4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7));
    EXPECT_THAT(ReadValues(mapped, variable + "/Momentum"),
                ElementsAre(104, 105, 102, 103, 100, 101, 110, 111, 108, 109, 106, 107));
    EXPECT_THAT(mapped.report(),
                ::testing::Contains(::testing::HasSubstr("reversing its input channels")));
  }
  const FakeFile carole_file({{"vgg_16__conv1__conv1_1/kernel", shape}});
  const std::vector<VariableSpec> wanted{{"vgg_16/conv1/conv1_1/weights", shape}};
  EXPECT_EQ(ReadValues(MappedWeights(carole_file, wanted), wanted[0].name)[0], 0);
}

// An object-based checkpoint whose first layer is the one of ResNet50.
class ResNetObjects final : public FakeFile {
 public:
  ResNetObjects() : FakeFile({{kName, {1, 2, 3, 2}}}) {}
  std::string variable_name(const std::string& /*name*/) const override {
    return "conv1_conv/kernel";
  }

 private:
  static constexpr char kName[] = "layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE";
};

TEST(MappedWeights, KnowsTheChannelOrderOfNamedObjects) {
  const std::vector<VariableSpec> wanted{{"resnet_v1_50/conv1/weights", {1, 2, 3, 2}}};
  const ResNetObjects file;
  const MappedWeights mapped(file, wanted);
  EXPECT_EQ(ReadValues(mapped, wanted[0].name)[0], 4);
  EXPECT_THAT(mapped.report(), ::testing::Not(Contains(HasSubstr("RGB order"))));
}

TEST(MappedWeights, UsesADenseLayerForAConvolution) {
  const FakeFile file({{"fc1/kernel", {8, 3}}, {"predictions/kernel", {4, 5}}});
  const std::vector<VariableSpec> wanted{{"vgg_16/fc6/weights", {2, 2, 2, 3}},
                                         {"vgg_16/fc8/weights", {1, 1, 4, 7}}};
  const MappedWeights mapped(file, wanted);
  EXPECT_EQ(mapped.shape("vgg_16/fc6/weights"), (Shape{2, 2, 2, 3}));
  EXPECT_EQ(mapped.shape("vgg_16/fc8/weights"), (Shape{4, 5}));  // other classes: unchanged
}

TEST(MappedWeights, FoldsABiasIntoTheBatchNorm) {
  const FakeFile file({{"conv1_bn/moving_mean", {2}}, {"conv1_conv/bias", {2}}});
  const std::vector<VariableSpec> wanted{{"resnet_v1_50/conv1/BatchNorm/moving_mean", {2}}};
  const MappedWeights mapped(file, wanted);
  EXPECT_THAT(ReadValues(mapped, "resnet_v1_50/conv1/BatchNorm/moving_mean"),
              ElementsAre(0 - 100, 1 - 101));
  EXPECT_THAT(mapped.names(), ElementsAre("resnet_v1_50/conv1/BatchNorm/moving_mean"));
  EXPECT_THAT(mapped.report(), Contains(HasSubstr("need training")));
  const FakeFile old({{"net/bn_conv1/moving_mean", {2}}, {"net/conv1/bias", {2}}});
  EXPECT_THAT(ReadValues(MappedWeights(old, wanted), wanted[0].name), ElementsAre(-100, -100));
}

// The names are those that an Estimator of the mnist_dist net writes.
TEST(MappedWeights, FindsTheSlotsOfAnEstimatorsAdam) {
  const std::string layer = "layer_with_weights-0/", value = "/.ATTRIBUTES/VARIABLE_VALUE";
  const std::string adam = "/.OPTIMIZER_SLOT/optimizer/optimizer/";
  const FakeFile file({{layer + "kernel" + value, {2, 3}},
                       {layer + "kernel" + adam + "m" + value, {2, 3}},
                       {layer + "kernel" + adam + "v" + value, {2, 3}},
                       {layer + "bias" + value, {3}},
                       {"optimizer/optimizer/beta1_power" + value, {}}});
  const std::vector<VariableSpec> wanted{{"dense/kernel", {2, 3}}, {"dense/bias", {3}}};
  const MappedWeights mapped(file, wanted);
  EXPECT_THAT(mapped.names(), ElementsAre("dense/kernel", "dense/kernel/Adam",
                                          "dense/kernel/Adam_1", "dense/bias", "beta1_power"));
  EXPECT_EQ(ReadValues(mapped, "dense/kernel/Adam_1")[5], 205);
  EXPECT_EQ(ReadValues(mapped, "beta1_power")[0], 400);
}

TEST(MappedWeights, MatchesTheLayersOfObjectBasedCheckpointsByOrder) {
  const auto file = OpenWeights(TestData() + "/tf_checkpoints/objects.ckpt");
  const std::vector<VariableSpec> wanted{{"conv2d/kernel", {3, 3, 1, 2}},
                                         {"conv2d/bias", {2}},
                                         {"dense/kernel", {8, 3}},
                                         {"dense/bias", {3}}};
  const MappedWeights mapped(*file, wanted);
  ASSERT_TRUE(mapped.Has("dense/bias"));
  EXPECT_THAT(ReadValues(mapped, "dense/bias"), ElementsAre(4, 4.25, 4.5));
  EXPECT_EQ(mapped.shape("conv2d/kernel"), (Shape{3, 3, 1, 2}));
}

// Such checkpoints store the names of variables, which tell the layers of an inner model.
TEST(MappedWeights, FindsInnerModelsInObjectBasedCheckpoints) {
  const auto file = OpenWeights(TestData() + "/tf_checkpoints/nested.ckpt");
  const std::vector<VariableSpec> wanted{{"MobilenetV1/Conv2d_0/weights", {1, 1, 1, 2}},
                                         {"MobilenetV1/Conv2d_0/BatchNorm/gamma", {2}},
                                         {"MobilenetV1/Conv2d_0/BatchNorm/beta", {2}}};
  const MappedWeights mapped(*file, wanted);
  ASSERT_EQ(mapped.misfit_hint(), "");
  EXPECT_THAT(mapped.names(),
              UnorderedElementsAre(wanted[0].name, wanted[1].name, wanted[2].name, "dense/kernel"));
  EXPECT_THAT(ReadValues(mapped, wanted[0].name), ElementsAre(1, 1.25));
  EXPECT_THAT(ReadValues(mapped, wanted[2].name), ElementsAre(2, 2.25));
}

}  // namespace
}  // namespace carole::io
