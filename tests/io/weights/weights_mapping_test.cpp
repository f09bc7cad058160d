#include "io/weights/weights_mapping.h"

#include <map>
#include <numeric>

#include "io/checkpoint/hdf5.h"
#include "io/weights/keras_weights.h"
#include "io/weights/open_weights.h"
#include "tests/io/damage.h"
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

std::vector<float> ReadValues(const WeightsSource& reader, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(reader.shape(name).size()));
  reader.Read(name, values);
  return values;
}

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
      // ResNet
      {"conv1_conv/kernel", "resnet_v1_50/conv1/weights"},
      {"conv2_block1_0_conv/kernel", "resnet_v1_50/block1/unit_1/bottleneck_v1/shortcut/weights"},
      {"conv5_block3_2_bn/beta", "resnet_v1_101/block4/unit_3/bottleneck_v1/conv2/BatchNorm/beta"},
  };
  for (const auto& [keras, slim] : pairs) {
    const FakeFile file({{"first", {1}}, {keras, {2}}});
    const std::vector<VariableSpec> wanted{{slim, {2}}};
    const MappedWeights mapped(file, wanted);
    ASSERT_TRUE(mapped.Has(slim)) << slim;
    EXPECT_THAT(ReadValues(mapped, slim), ElementsAre(100, 101)) << slim;
  }
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

// Writes a file in Keras's legacy layout, at the root or in a group.
void WriteLegacy(const std::string& path, const std::string& root) {
  Hdf5File file = Hdf5File::Create(path);
  const std::string top = root.empty() ? "/" : root;
  if (!root.empty()) file.CreateGroup(root);
  file.SetStringList(top, "layer_names", {"in", "c", "bn"});
  for (const char* layer : {"in", "c", "bn"}) file.CreateGroup(root + "/" + layer);
  file.SetStringList(root + "/c", "weight_names", {"c/kernel:0", "c/bias:0"});
  file.SetStringList(root + "/bn", "weight_names", {"bn/gamma"});
  file.WriteFloats(root + "/c/c/kernel:0", {1, 2}, std::vector<float>{1, 2});
  file.WriteFloats(root + "/c/c/bias:0", {2}, std::vector<float>{3, 4});
  file.WriteFloats(root + "/bn/bn/gamma", {2}, std::vector<float>{5, 6});
  file.Close();
}

TEST(KerasWeights, ReadsTheLegacyLayout) {
  TemporaryFolder folder;
  for (const char* root : {"", "/model_weights"}) {
    const std::string path = folder / "k.h5";
    WriteLegacy(path, root);
    const auto file = OpenWeights(path);
    EXPECT_THAT(file->names(), ElementsAre("c/kernel", "c/bias", "bn/gamma"));
    EXPECT_EQ(file->shape("c/kernel"), (Shape{1, 2}));
    EXPECT_THAT(ReadValues(*file, "bn/gamma"), ElementsAre(5, 6));
  }
}

TEST(KerasWeights, ReadsVersion3) {
  TemporaryFolder folder;
  const std::string path = folder / "k.weights.h5";
  Hdf5File writer = Hdf5File::Create(path);
  const std::string norm = "/layers/batch_normalization_12/vars/";
  writer.CreateGroup("/layers/re_lu");
  writer.CreateGroup("/layers/depthwise_conv2d/vars");
  writer.SetFixedString("/layers/depthwise_conv2d/vars", "name", "conv_dw_1");
  writer.WriteFloats("/layers/depthwise_conv2d/vars/0", {1, 1, 2, 1}, std::vector<float>{7, 8});
  for (const char* number : {"0", "1", "2"})
    writer.WriteFloats(norm + number, {1}, std::vector<float>{9});
  writer.WriteFloats("/layers/unheard_of/vars/0", {1}, std::vector<float>{9});
  writer.Close();
  const auto file = OpenWeights(path);
  EXPECT_THAT(file->names(),
              UnorderedElementsAre("conv_dw_1/depthwise_kernel", "batch_normalization_12/beta",
                                   "batch_normalization_12/moving_mean",
                                   "batch_normalization_12/moving_variance", "unheard_of/0"));
  EXPECT_THAT(ReadValues(*file, "conv_dw_1/depthwise_kernel"), ElementsAre(7, 8));
}

TEST(KerasWeights, RefusesOtherFiles) {
  TemporaryFolder folder;
  const std::string path = folder / "k.h5";
  Hdf5File writer = Hdf5File::Create(path);
  writer.CreateGroup("/data");
  writer.Close();
  EXPECT_THAT(TextOf<DataError>([&] { OpenWeights(path); }),
              HasSubstr("neither a checkpoint of carole nor weights of Keras"));
  WriteLegacy(path, "");
  const std::string bytes = ReadText(path);
  WriteText(path, bytes.substr(0, bytes.size() / 2));
  EXPECT_THROW(OpenWeights(path), DataError);
}

// One dataset has many names. Together they would be larger than the file.
TEST(KerasWeights, RefusesTensorsLargerThanTheFile) {
  TemporaryFolder folder;
  const std::string path = folder / "k.h5";
  Hdf5File writer = Hdf5File::Create(path);
  writer.CreateGroup("/c");
  writer.WriteFloats("/c/w", {10'000}, std::vector<float>(10'000));
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.emplace_back("w");
  writer.SetStringList("/", "layer_names", {"c"});
  writer.SetStringList("/c", "weight_names", names);
  writer.Close();
  EXPECT_THAT(TextOf<DataError>([&] { OpenWeights(path); }), HasSubstr("more bytes than the file"));
}

}  // namespace
}  // namespace carole::io
