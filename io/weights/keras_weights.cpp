#include "io/weights/keras_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "io/checkpoint/hdf5.h"
#include "io/checkpoint/keras_layout.h"
#include "io/weights/keras_names.h"
#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

constexpr std::string_view kVars = "vars";
constexpr char kTopLevel[] = "top_level_model_weights";  // weights of the model itself

// The groups of Keras 3 that hold other state than weights.
constexpr std::string_view kStateGroups[] = {"optimizer", "metrics", "optimizer_weights"};
// The groups of Keras 3 that hold the layers of a model and have no name of their own.
constexpr std::string_view kLayerGroups[] = {"layers", "_layer_checkpoint_dependencies"};

// "/layers/dense/vars/0" -> layers, dense, vars, 0
std::vector<std::string> Components(std::string_view path) {
  std::vector<std::string> components;
  while (!path.empty()) {
    path.remove_prefix(1);
    const size_t end = std::min(path.find('/'), path.size());
    components.emplace_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  return components;
}

bool Contains(const auto& names, std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

// Whether a dataset is the state of an optimizer or a metric.
bool IsState(const std::string& dataset) {
  return std::ranges::any_of(Components(dataset), [](const std::string& component) {
    return Contains(kStateGroups, component);
  });
}

bool IsWeightOfVersion3(const std::string& dataset) {
  const std::string_view group = ScopeOf(dataset);
  return LeafOf(group) == kVars;
}

class KerasWeights final : public WeightsSource {
 public:
  explicit KerasWeights(const std::string& path)
      : file_(Hdf5File::Open(path, HeapStrings::kAllow)),
        datasets_(file_.Datasets()),
        bytes_left_(file_.bytes()) {
    if (file_.HasAttribute("/", "layer_names") || file_.HasAttribute("/", "layer_names0")) {
      ListLegacy("");
    } else if (file_.Exists("/model_weights")) {
      ListLegacy("/model_weights");
    } else if (file_.Exists("/layers") || std::ranges::any_of(datasets_, IsWeightOfVersion3)) {
      ListVersion3();
    } else {
      throw DataError(fmt::format(
          "[io.keras] {}: this HDF5 file is neither a checkpoint of carole nor weights of Keras",
          path));
    }
    ListOthers();
  }

  const std::string& path() const override { return file_.path(); }
  const std::vector<std::string>& names() const override { return names_; }
  const std::vector<std::string>& other_tensors() const override { return others_; }
  const std::string& misfit_hint() const override { return misfit_hint_; }
  bool Has(const std::string& name) const override { return tensors_.contains(name); }
  Shape shape(const std::string& name) const override { return tensors_.at(name).shape; }
  std::string type(const std::string& name) const override { return tensors_.at(name).type; }
  void Read(const std::string& name, std::span<float> out) const override {
    const std::vector<float> values = file_.ReadFloats(tensors_.at(name).dataset);
    CAROLE_CHECK_EQ(out.size(), values.size(), "elements of {}", name);
    std::ranges::copy(values, out.begin());
  }

 private:
  struct Tensor {
    std::string dataset;
    Shape shape;
    std::string type;
  };

  void Add(const std::string& name, const std::string& dataset) {
    const std::string type = file_.TypeOf(dataset);
    if (!type.starts_with("float")) return;  // for ListOthers()
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
    const auto [it, is_new] = tensors_.emplace(name, Tensor{dataset, shape, type});
    if (!is_new) {
      throw DataError(fmt::format(
          "[io.keras] {}: {}: two weights have this name: got {} and {}, want unique names; rename "
          "the layers in Keras and save the model again",
          file_.path(), name, it->second.dataset, dataset));
    }
    names_.push_back(name);
    listed_.insert(dataset);
  }

  // Lists the tensors of the legacy layout: a whole model, or weights only.
  void ListLegacy(const std::string& root) {
    std::vector<std::string> layers = file_.GetStringList(root.empty() ? "/" : root, "layer_names");
    const bool has_top_level = file_.Exists(fmt::format("{}/{}", root, kTopLevel));
    if (has_top_level && !Contains(layers, kTopLevel)) layers.emplace_back(kTopLevel);
    for (const std::string& layer : layers) {
      const std::string group = fmt::format("{}/{}", root, layer);
      if (!file_.HasAttribute(group, "weight_names") && !file_.HasAttribute(group, "weight_names0"))
        continue;
      const std::vector<std::string> weights = file_.GetStringList(group, "weight_names");
      const std::vector<std::string> names = LegacyWeightNames(layer, weights);
      for (size_t i = 0; i < weights.size(); ++i)
        Add(names[i], fmt::format("{}/{}", group, weights[i]));
    }
  }

  // Lists the tensors of a .weights.h5 of Keras 3. Models may hold models.
  void ListVersion3() {
    std::unordered_map<std::string_view, size_t> counts;  // of the weights in a group `vars`
    std::set<std::string> unique;
    for (const std::string& dataset : datasets_) ++counts[ScopeOf(dataset)];
    std::vector<std::pair<std::string, const std::string*>> found;
    for (const std::string& dataset : datasets_) {
      if (IsState(dataset) || !IsWeightOfVersion3(dataset)) continue;
      found.emplace_back(NameInVersion3(Components(dataset), counts.at(ScopeOf(dataset))),
                         &dataset);
      unique.insert(found.back().first);
    }
    // A model that is a class of its own may have layers of the same name. Groups are unique.
    const bool is_unique = unique.size() == found.size();
    for (const auto& [name, dataset] : found) Add(is_unique ? name : dataset->substr(1), *dataset);
    if (names_.empty() || has_layer_names_) return;
    misfit_hint_ =
        "the file does not name its layers, as with save_weights() of tf_keras and of Keras before "
        "3.6; save the whole model there, with model.save(\"NAME.h5\")";
  }

  // The name of a group in Keras: that of its group `vars`, or of the group itself.
  std::string NameOfGroup(const std::string& group, const std::string& name) {
    const std::string vars = fmt::format("{}/{}", group, kVars);
    if (!file_.Exists(vars) || !file_.HasAttribute(vars, "name")) return name;
    has_layer_names_ = true;
    return file_.GetString(vars, "name");
  }

  // `components` are those of a dataset: groups of models and layers, "vars", a number.
  std::string NameInVersion3(const std::vector<std::string>& components, size_t count) {
    const size_t depth = components.size() - 2;
    const std::string& number = components.back();
    std::string group, name, layer;
    for (size_t i = 0; i < depth; ++i) {
      group += "/" + components[i];
      if (i + 1 < depth && Contains(kLayerGroups, components[i])) continue;
      layer = NameOfGroup(group, components[i]);
      name += layer + "/";
    }
    if (depth == 0) name = NameOfGroup("", "model") + "/";
    // The group of a layer has the name of its class, or that of an attribute of a user's class.
    const bool is_class = depth > 0 && IsKnownLayerClass(components[depth - 1]);
    return name + NameOfNumberedWeight(is_class ? components[depth - 1] : layer, number, count);
  }

  // Describes the datasets that are no weights. Throws DataError if one may be a weight.
  void ListOthers() {
    for (const std::string& dataset : datasets_) {
      if (listed_.contains(dataset)) continue;
      const std::string type = file_.TypeOf(dataset);
      if (!IsState(dataset) && type.starts_with("float")) {
        throw DataError(fmt::format(
            "[io.keras] {}: {}: is not among the weights that the file lists, so it would be left "
            "out; save the model again, with model.save(\"NAME.h5\")",
            file_.path(), dataset));
      }
      others_.push_back(
          fmt::format("{} {} {}", dataset.substr(1), type, file_.ShapeOf(dataset).ToString()));
    }
  }

  const Hdf5File file_;
  const std::vector<std::string> datasets_;
  uint64_t bytes_left_;  // bytes of the file that no tensor has claimed yet
  std::vector<std::string> names_, others_;
  std::unordered_map<std::string, Tensor> tensors_;
  std::set<std::string> listed_;  // the datasets of tensors_
  bool has_layer_names_ = false;  // whether a .weights.h5 has names of layers
  std::string misfit_hint_;
};

}  // namespace

std::unique_ptr<WeightsSource> OpenKerasWeights(const std::string& path) {
  return std::make_unique<KerasWeights>(path);
}

}  // namespace carole::io
