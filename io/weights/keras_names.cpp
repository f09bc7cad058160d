#include "io/weights/keras_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "io/checkpoint/keras_layout.h"

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

// The weights of Keras 1, and their names since Keras 2. running_std held the variance.
constexpr std::pair<std::string_view, std::string_view> kKeras1Weights[] = {
    {"W", "kernel"},
    {"b", "bias"},
    {"gamma", "gamma"},
    {"beta", "beta"},
    {"running_mean", "moving_mean"},
    {"running_std", "moving_variance"},
};

// "conv2d_12" -> "conv2d"
std::string_view WithoutNumber(std::string_view name) {
  const size_t last = name.find_last_not_of("0123456789");
  const bool is_numbered = last != name.npos && last + 1 < name.size() && name[last] == '_';
  return is_numbered ? name.substr(0, last) : name;
}

const ClassWeights* FindClass(std::string_view layer_class) {
  const auto* row =
      std::ranges::find(kClasses, WithoutNumber(layer_class), &ClassWeights::layer_class);
  return row == std::end(kClasses) ? nullptr : row;
}

// "block1_conv1_W_1" -> "block1_conv1/kernel". Other names stay.
std::string SplitKeras1Name(std::string_view name) {
  for (const auto& [old_leaf, leaf] : kKeras1Weights) {
    const std::string suffix = fmt::format("_{}", old_leaf);
    for (std::string_view layer : {name, WithoutNumber(name)}) {
      if (layer.size() <= suffix.size() || !layer.ends_with(suffix)) continue;
      layer.remove_suffix(suffix.size());
      return fmt::format("{}/{}", layer, leaf);
    }
  }
  return std::string(name);
}

// "conv1/kernel:0" -> "conv1/kernel"
std::string PathOf(std::string_view weight) {
  const std::string_view path = weight.substr(0, weight.rfind(':'));
  return path.find('/') == path.npos ? SplitKeras1Name(path) : std::string(path);
}

// The name of a weight with this path. The path may begin with scopes outside of the layer. If all
// weights of the layer are in one scope, that scope may be the layer with another number, because
// TensorFlow 1 made scopes unique.
std::string NameInLayer(const std::string& layer, const std::string& path, bool has_one_scope) {
  const std::string scope = fmt::format("/{}/", layer);
  const std::string absolute = "/" + path;
  if (const size_t found = absolute.rfind(scope); found != std::string::npos)
    return absolute.substr(found + 1);
  const std::string_view parent = LeafOf(ScopeOf(path));
  const bool is_renumbered = has_one_scope && parent != path && WithoutNumber(parent) == layer;
  return fmt::format("{}/{}", layer, is_renumbered ? LeafOf(path) : std::string_view(path));
}

}  // namespace

std::vector<std::string> LegacyWeightNames(const std::string& layer,
                                           const std::vector<std::string>& weights) {
  std::vector<std::string> paths;
  std::set<std::string_view> scopes;
  for (const std::string& weight : weights) paths.push_back(PathOf(weight));
  for (const std::string& path : paths) scopes.insert(ScopeOf(path));
  std::vector<std::string> names;
  for (const std::string& path : paths)
    names.push_back(NameInLayer(layer, path, scopes.size() == 1));
  if (std::set(names.begin(), names.end()).size() == names.size()) return names;
  // Only the scopes outside of the layer differ for some weights, so all scopes stay in the names.
  names.clear();
  for (const std::string& weight : weights) names.push_back(fmt::format("{}/{}", layer, weight));
  return names;
}

bool IsKnownLayerClass(std::string_view layer_class) { return FindClass(layer_class) != nullptr; }

// A batch norm with three weights has no gamma, the only one that the nets of Keras leave out.
std::string NameOfNumberedWeight(std::string_view layer_class, const std::string& number,
                                 size_t count) {
  const ClassWeights* row = FindClass(layer_class);
  if (row == nullptr || number.size() != 1) return number;
  const bool without_gamma = row->weights[0] == "gamma" && count == 3;
  const size_t index = static_cast<size_t>(number[0] - '0') + (without_gamma ? 1 : 0);
  const bool is_known = index < row->weights.size() && !row->weights[index].empty();
  return is_known ? std::string(row->weights[index]) : number;
}

}  // namespace carole::io
