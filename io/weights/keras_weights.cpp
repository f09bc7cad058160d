#include "io/weights/keras_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "io/checkpoint/hdf5.h"
#include "io/checkpoint/keras_layout.h"
#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// The names of the variables of a class of layers. The files of Keras 3 only number them.
struct ClassWeights {
  std::string_view layer_class;  // the name of its groups without the number
  std::array<std::string_view, 4> weights;
};
constexpr ClassWeights kClasses[] = {
    {"conv2d", {"kernel", "bias"}},
    {"dense", {"kernel", "bias"}},
    {"depthwise_conv2d", {"depthwise_kernel", "bias"}},
    {"separable_conv2d", {"depthwise_kernel", "pointwise_kernel", "bias"}},
    {"batch_normalization", {"gamma", "beta", "moving_mean", "moving_variance"}},
};

// "conv2d_12" -> "conv2d"
std::string_view ClassOf(std::string_view group) {
  const size_t last = group.find_last_not_of("0123456789");
  const bool numbered = last != group.npos && last + 1 < group.size() && group[last] == '_';
  return numbered ? group.substr(0, last) : group;
}

// "conv1/conv1/kernel:0" -> "kernel"
std::string_view KerasLeafOf(std::string_view weight) {
  const std::string_view leaf = LeafOf(weight);
  return leaf.substr(0, leaf.find(':'));
}

class KerasWeights final : public WeightsSource {
 public:
  explicit KerasWeights(const std::string& path)
      : file_(Hdf5File::Open(path, HeapStrings::kAllow)), bytes_left_(file_.bytes()) {
    if (file_.HasAttribute("/", "layer_names") || file_.HasAttribute("/", "layer_names0")) {
      ListLegacy("");
    } else if (file_.Exists("/model_weights")) {
      ListLegacy("/model_weights");
    } else if (file_.Exists("/layers")) {
      ListVersion3();
    } else {
      throw DataError(fmt::format(
          "[io.keras] {}: this HDF5 file is neither a checkpoint of carole nor weights of Keras",
          path));
    }
  }

  const std::string& path() const override { return file_.path(); }
  const std::vector<std::string>& names() const override { return names_; }
  bool Has(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override { return tensors_.at(name).shape; }
  void Read(const std::string& name, std::span<float> out) const override {
    const std::vector<float> values = file_.ReadFloats(tensors_.at(name).dataset);
    CAROLE_CHECK_EQ(out.size(), values.size(), "elements of {}", name);
    std::ranges::copy(values, out.begin());
  }

 private:
  struct Tensor {
    std::string dataset;
    Shape shape;
  };

  void Add(const std::string& name, const std::string& dataset) {
    const Shape shape = file_.ShapeOf(dataset);
    // Bounds the memory that a small file can take. Data may be compressed, but even then a float
    // is assumed to take at least two bits.
    const uint64_t min_bytes = static_cast<uint64_t>(shape.size()) / 4;
    if (min_bytes > bytes_left_) {
      throw DataError(fmt::format(
          "[io.keras] {}: {}: shape {} needs more bytes than the file has; the file is damaged",
          file_.path(), name, shape.ToString()));
    }
    bytes_left_ -= min_bytes;
    if (tensors_.emplace(name, Tensor{dataset, shape}).second) names_.push_back(name);
  }

  // Lists the tensors of the legacy layout: a whole model, or weights only.
  void ListLegacy(const std::string& root) {
    const std::string top = root.empty() ? "/" : root;
    for (const std::string& layer : file_.GetStringList(top, "layer_names")) {
      const std::string group = fmt::format("{}/{}", root, layer);
      if (!file_.HasAttribute(group, "weight_names") && !file_.HasAttribute(group, "weight_names0"))
        continue;
      for (const std::string& weight : file_.GetStringList(group, "weight_names"))
        Add(fmt::format("{}/{}", layer, KerasLeafOf(weight)), fmt::format("{}/{}", group, weight));
    }
  }

  // Lists the tensors of a .weights.h5 of Keras 3.
  void ListVersion3() {
    for (const std::string& group : file_.Children("/layers")) {
      const std::string vars = fmt::format("/layers/{}/vars", group);
      if (!file_.Exists(vars)) continue;
      const std::string layer =
          file_.HasAttribute(vars, "name") ? file_.GetString(vars, "name") : group;
      const std::vector<std::string> numbers = file_.Children(vars);
      for (const std::string& number : numbers)
        Add(fmt::format("{}/{}", layer, NameOfWeight(group, number, numbers.size())),
            fmt::format("{}/{}", vars, number));
    }
  }

  // Returns the name of weight `number`, or the number itself if the class of layers is unknown. A
  // batch norm with three weights has no gamma, the only one that the nets of Keras leave out.
  static std::string NameOfWeight(std::string_view group, const std::string& number, size_t count) {
    const auto* row = std::ranges::find(kClasses, ClassOf(group), &ClassWeights::layer_class);
    if (row == std::end(kClasses) || number.size() != 1) return number;
    const bool without_gamma = row->weights[0] == "gamma" && count == 3;
    const size_t index = static_cast<size_t>(number[0] - '0') + (without_gamma ? 1 : 0);
    const bool known = index < row->weights.size() && !row->weights[index].empty();
    return known ? std::string(row->weights[index]) : number;
  }

  const Hdf5File file_;
  uint64_t bytes_left_;  // bytes of the file that no tensor has claimed yet
  std::vector<std::string> names_;
  std::unordered_map<std::string, Tensor> tensors_;
};

}  // namespace

std::unique_ptr<WeightsSource> OpenKerasWeights(const std::string& path) {
  return std::make_unique<KerasWeights>(path);
}

}  // namespace carole::io
