// Maps TF-Slim's variable names to layers and weights in Keras's weight layout. Pure functions.
//
// All variables of one scope make one Keras layer:
//   scope/conv1/{weights,biases} -> layer scope__conv1 with kernel:0 and bias:0
//   scope/conv1/BatchNorm/{gamma,beta,moving_mean,moving_variance} -> layer scope__conv1__BatchNorm
// Keras forbids '/' in the name of a layer, and its PyTorch backend forbids '.'. So "__" stands for
// '/'. The exact names are stored separately (CHECKPOINT_FORMAT.md).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

// A layer and its weights, in Keras's order.
struct KerasLayer {
  std::string name;                       // "resnet_v1_50__conv1"
  std::vector<std::string> weight_names;  // "resnet_v1_50__conv1/kernel:0"
  std::vector<size_t> variables;          // for each weight, the index of its variable
};

// What Keras needs to rebuild the net of a checkpoint and to assign the weights to its layers.
struct KerasModel {
  std::string config;               // JSON: the attribute model_config
  std::vector<std::string> layers;  // the layers that have weights, in Keras's order
  std::string
      training_config;  // JSON: the attribute training_config; empty: the net is not compiled
};

// The version that files name. Keras 2 and 3 both read the layout of this version.
inline constexpr char kKerasVersion[] = "2.15.0";

// LeafOf("net/conv1/weights") is "weights", ScopeOf() is "net/conv1". For a name without a scope
// both return the name.
inline std::string_view LeafOf(std::string_view name) { return name.substr(name.rfind('/') + 1); }
inline std::string_view ScopeOf(std::string_view name) { return name.substr(0, name.rfind('/')); }

// The name of a scope's layer: "net/conv1" -> "net__conv1".
std::string KerasLayerName(std::string_view scope);

// Groups variables into layers, which come in the order of their first variables. The weights of a
// layer are in Keras's order: kernels, bias; gamma, beta, moving mean, moving variance. Other
// variables follow under their own names, in the given order. Throws DataError if a name is empty,
// too long, not unique, or has an empty component.
std::vector<KerasLayer> MapToKeras(std::span<const std::string> variable_names);

}  // namespace carole::io
