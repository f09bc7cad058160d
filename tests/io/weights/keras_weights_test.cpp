// Reads files in the layouts of Keras. tests/interop/check_keras.py reads files of Keras itself.
#include "io/weights/keras_weights.h"

#include <hdf5.h>

#include <functional>

#include "io/checkpoint/hdf5.h"
#include "io/weights/open_weights.h"
#include "tests/io/damage.h"
#include "tests/io/read_values.h"

namespace carole::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class KerasWeightsTest : public ::testing::Test {
 protected:
  // Writes a layer of the legacy layout in `root`. Weight k is the number 10 + k.
  static void WriteLayer(Hdf5File& file, const std::string& root, const std::string& layer,
                         const std::vector<std::string>& weights) {
    const std::string group = root + "/" + layer;
    file.CreateGroup(group);
    file.SetStringList(group, "weight_names", weights);
    for (size_t k = 0; k < weights.size(); ++k) {
      const std::vector<float> value{static_cast<float>(10 + k)};
      file.WriteFloats(group + "/" + weights[k], {1}, value);
    }
  }

  // Writes a file in the legacy layout: layers in, c and bn, at the root or in a group.
  void WriteLegacy(const std::string& root) {
    Hdf5File file = Hdf5File::Create(path_);
    if (!root.empty()) file.CreateGroup(root);
    file.SetStringList(root.empty() ? "/" : root, "layer_names", {"in", "c", "bn"});
    file.CreateGroup(root + "/in");
    WriteLayer(file, root, "c", {"c/kernel:0", "c/bias:0"});
    WriteLayer(file, root, "bn", {"bn/gamma"});
    file.Close();
  }

  // Opens the file with the HDF5 library itself.
  void Edit(const std::function<void(hid_t)>& edit) {
    const hid_t file = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    edit(file);
    H5Fclose(file);
  }

  static void AddCounter(hid_t file, const char* path) {
    const hid_t space = H5Screate(H5S_SCALAR), links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    H5Dclose(H5Dcreate2(file, path, H5T_STD_I64LE, space, links, H5P_DEFAULT, H5P_DEFAULT));
    H5Pclose(links);
    H5Sclose(space);
  }

  std::string ErrorOfOpen() {
    return TextOf<DataError>([&] { OpenWeights(path_); });
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "k.h5";
};

TEST_F(KerasWeightsTest, ReadsTheLegacyLayout) {
  for (const char* root : {"", "/model_weights"}) {
    WriteLegacy(root);
    const auto file = OpenWeights(path_);
    EXPECT_THAT(file->names(), ElementsAre("c/kernel", "c/bias", "bn/gamma"));
    EXPECT_EQ(file->shape("c/kernel"), (Shape{1}));
    EXPECT_EQ(file->type("c/kernel"), "float32");
    EXPECT_THAT(ReadValues(*file, "c/bias"), ElementsAre(11));
    EXPECT_THAT(file->other_tensors(), IsEmpty());
  }
}

// An inner model is one layer of the outer model, whose group has the weights of all inner layers.
TEST_F(KerasWeightsTest, ReadsModelsInsideOfModels) {
  Hdf5File writer = Hdf5File::Create(path_);
  writer.CreateGroup("/model_weights");
  writer.SetStringList("/model_weights", "layer_names", {"net", "dense"});
  WriteLayer(writer, "/model_weights", "net",
             {"c/kernel:0", "bn/gamma:0", "dw/depthwise_kernel:0", "c2/kernel:0"});
  WriteLayer(writer, "/model_weights", "dense", {"sequential/dense/kernel"});
  WriteLayer(writer, "/model_weights", "top_level_model_weights", {"scale:0"});
  writer.Close();
  const auto file = OpenWeights(path_);
  EXPECT_THAT(file->names(),
              ElementsAre("net/c/kernel", "net/bn/gamma", "net/dw/depthwise_kernel",
                          "net/c2/kernel", "dense/kernel", "top_level_model_weights/scale"));
  EXPECT_THAT(ReadValues(*file, "net/c2/kernel"), ElementsAre(13));
}

TEST_F(KerasWeightsTest, NamesWhatTheFileDoesNotList) {
  WriteLegacy("/model_weights");
  Edit([](hid_t file) {
    AddCounter(file, "/optimizer_weights/adam/iteration");
    AddCounter(file, "/model_weights/c/c/count");
    H5Lcreate_hard(file, "/model_weights/c/c/bias:0", file, "/optimizer_weights/momentum",
                   H5P_DEFAULT, H5P_DEFAULT);
  });
  EXPECT_THAT(
      OpenWeights(path_)->other_tensors(),
      ElementsAre("model_weights/c/c/count int64 []", "optimizer_weights/adam/iteration int64 []",
                  "optimizer_weights/momentum float32 [1]"));
  Edit([](hid_t file) {
    H5Lcreate_hard(file, "/model_weights/c/c/bias:0", file, "/model_weights/c/extra", H5P_DEFAULT,
                   H5P_DEFAULT);
  });
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("k.h5: /model_weights/c/extra: is not among the weights"));
}

TEST_F(KerasWeightsTest, RefusesTwoWeightsOfOneName) {
  Hdf5File writer = Hdf5File::Create(path_);
  writer.CreateGroup("/c");
  writer.WriteFloats("/c/w", {1}, std::vector<float>{1});
  writer.SetStringList("/", "layer_names", {"c"});
  writer.SetStringList("/c", "weight_names", {"w", "w"});
  writer.Close();
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("c/w: two weights have this name: got /c/w and /c/w"));
}

TEST_F(KerasWeightsTest, ReadsVersion3) {
  Hdf5File writer = Hdf5File::Create(path_);
  const std::vector<float> one{9};
  const auto layer = [&](const std::string& group, const std::string& name, int weights) {
    const std::string vars = group + "/vars";
    writer.CreateGroup(vars);
    if (!name.empty()) writer.SetFixedString(vars, "name", name);
    for (int i = 0; i < weights; ++i) writer.WriteFloats(fmt::format("{}/{}", vars, i), {1}, one);
  };
  layer("", "sequential", 0);
  layer("/layers/re_lu", "", 0);
  layer("/layers/depthwise_conv2d", "conv_dw_1", 1);
  layer("/layers/batch_normalization_12", "", 3);
  layer("/layers/unheard_of", "", 1);
  layer("/layers/functional", "net", 0);  // a model inside of the model
  layer("/layers/functional/layers/conv2d", "conv1", 2);
  layer("/layers/functional/layers/functional", "inner", 0);  // one more level
  layer("/layers/functional/layers/functional/layers/dense", "d", 1);
  layer("/encoder/c", "conv2d_1", 1);  // attributes of a user's class
  layer("/optimizer", "adam", 1);
  layer("/metrics/mean", "", 1);
  writer.Close();
  Edit([](hid_t file) { AddCounter(file, "/layers/dropout/seed_generator/vars/0"); });
  const auto file = OpenWeights(path_);
  EXPECT_THAT(file->names(),
              UnorderedElementsAre("conv_dw_1/depthwise_kernel", "batch_normalization_12/beta",
                                   "batch_normalization_12/moving_mean",
                                   "batch_normalization_12/moving_variance", "unheard_of/0",
                                   "net/conv1/kernel", "net/conv1/bias", "net/inner/d/kernel",
                                   "encoder/conv2d_1/kernel"));
  EXPECT_THAT(ReadValues(*file, "net/conv1/bias"), ElementsAre(9));
  EXPECT_THAT(file->other_tensors(),
              ElementsAre("layers/dropout/seed_generator/vars/0 int64 []",
                          "metrics/mean/vars/0 float32 [1]", "optimizer/vars/0 float32 [1]"));
  EXPECT_EQ(file->misfit_hint(), "");
}

TEST_F(KerasWeightsTest, SaysThatVersion3HasNoNamesOfLayers) {
  Hdf5File writer = Hdf5File::Create(path_);
  writer.WriteFloats("/layers/functional/layers/conv2d_1/vars/0", {1}, std::vector<float>{9});
  writer.Close();
  const auto file = OpenWeights(path_);
  EXPECT_THAT(file->names(), ElementsAre("functional/conv2d_1/kernel"));
  EXPECT_THAT(file->misfit_hint(), HasSubstr("does not name its layers"));
}

// Layers of a user's classes may have the same name.
TEST_F(KerasWeightsTest, KeepsTheGroupsOfVersion3IfNamesAreNotUnique) {
  Hdf5File writer = Hdf5File::Create(path_);
  for (const std::string vars : {"/a/vars", "/b/vars"}) {
    writer.WriteFloats(vars + "/0", {1}, std::vector<float>{9});
    writer.SetFixedString(vars, "name", "dense");
  }
  writer.Close();
  EXPECT_THAT(OpenWeights(path_)->names(), ElementsAre("a/vars/0", "b/vars/0"));
}

TEST_F(KerasWeightsTest, RefusesOtherFiles) {
  Hdf5File writer = Hdf5File::Create(path_);
  writer.CreateGroup("/data");
  writer.Close();
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("neither a checkpoint of carole nor weights of Keras"));
  WriteLegacy("");
  const std::string bytes = ReadText(path_);
  WriteText(path_, bytes.substr(0, bytes.size() / 2));
  EXPECT_THROW(OpenWeights(path_), DataError);
}

// One dataset has many links. Together they would be larger than the file.
TEST_F(KerasWeightsTest, RefusesTensorsLargerThanTheFile) {
  Hdf5File writer = Hdf5File::Create(path_);
  writer.CreateGroup("/c");
  writer.WriteFloats("/c/w", {10'000}, std::vector<float>(10'000));
  std::vector<std::string> names{"w"};
  for (int i = 0; i < 100; ++i) names.emplace_back("c/w" + std::to_string(i));
  writer.SetStringList("/", "layer_names", {"c"});
  writer.SetStringList("/c", "weight_names", names);
  writer.CreateGroup("/c/c");
  writer.Close();
  Edit([&](hid_t file) {
    for (size_t i = 1; i < names.size(); ++i) {
      H5Lcreate_hard(file, "/c/w", file, ("/c/" + names[i]).c_str(), H5P_DEFAULT, H5P_DEFAULT);
    }
  });
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("more bytes than the file"));
}

}  // namespace
}  // namespace carole::io
