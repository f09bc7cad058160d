#include "io/checkpoint/keras_layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "src/core/check.h"

namespace carole::io {
namespace {

struct WeightName {
  std::string_view slim;
  std::string_view keras;
};

// In the order in which Keras stores them within a layer.
constexpr WeightName kWeightNames[] = {
    {"depthwise_weights", "depthwise_kernel"},
    {"pointwise_weights", "pointwise_kernel"},
    {"weights", "kernel"},
    {"biases", "bias"},
    {"gamma", "gamma"},
    {"beta", "beta"},
    {"moving_mean", "moving_mean"},
    {"moving_variance", "moving_variance"},
};

// The row of a name in kWeightNames, or the number of rows for other names.
size_t Rank(std::string_view leaf) {
  const auto* row = std::ranges::find(kWeightNames, leaf, &WeightName::slim);
  return static_cast<size_t>(row - std::begin(kWeightNames));
}

// A variable without a scope forms a layer by itself.
std::string LayerNameOf(std::string_view name) { return KerasLayerName(ScopeOf(name)); }

[[noreturn]] void RefuseVariable(std::string_view name, const std::string& why) {
  throw DataError(fmt::format(
      "[io.keras] variable '{}': cannot be stored in an .h5 checkpoint: {}; convert the checkpoint "
      "to TensorFlow's format",
      name, why));
}

void CheckName(std::string_view name) {
  constexpr size_t kMaxBytes = 60000;  // the name must fit into an attribute
  if (name.size() > kMaxBytes) {
    RefuseVariable(
        name.substr(0, 80),
        fmt::format("its name is too long: got {} bytes, want at most {}", name.size(), kMaxBytes));
  }
  for (size_t first = 0; first <= name.size();) {
    const size_t end = std::min(name.find('/', first), name.size());
    const std::string_view part = name.substr(first, end - first);
    if (part.empty() || part == "." || part.find('\0') != part.npos)
      RefuseVariable(name, "a component of its name is empty, is '.' or contains NUL");
    first = end + 1;
  }
}

}  // namespace

std::string KerasLayerName(std::string_view scope) {
  std::string layer;
  for (char c : scope) {
    if (c == '/') {
      layer += "__";
    } else {
      layer += c;
    }
  }
  return layer;
}

std::vector<KerasLayer> MapToKeras(std::span<const std::string> variable_names) {
  std::vector<KerasLayer> layers;
  std::map<std::string, size_t> index_of_layer;
  for (size_t i = 0; i < variable_names.size(); ++i) {
    CheckName(variable_names[i]);
    const std::string name = LayerNameOf(variable_names[i]);
    const auto [it, is_new] = index_of_layer.emplace(name, layers.size());
    if (is_new) layers.push_back({.name = name});
    layers[it->second].variables.push_back(i);
  }
  std::set<std::string> taken;
  for (KerasLayer& layer : layers) {
    std::ranges::stable_sort(layer.variables, {},
                             [&](size_t i) { return Rank(LeafOf(variable_names[i])); });
    for (size_t i : layer.variables) {
      const std::string_view leaf = LeafOf(variable_names[i]);
      const size_t rank = Rank(leaf);
      const std::string_view keras =
          rank < std::size(kWeightNames) ? kWeightNames[rank].keras : leaf;
      layer.weight_names.push_back(fmt::format("{}/{}:0", layer.name, keras));
      if (!taken.insert(layer.weight_names.back()).second)
        RefuseVariable(variable_names[i],
                       "another variable has the same Keras name, " + layer.weight_names.back());
    }
  }
  return layers;
}

}  // namespace carole::io
