// Where a TF-Slim variable lies in Keras's weight layout: a pure mapping of names.
//
// All variables of one scope make one Keras layer: `scope/conv1/{weights,biases}` is the layer
// `scope__conv1` with `kernel:0` and `bias:0`; `scope/conv1/BatchNorm/{gamma,beta,moving_mean,
// moving_variance}` is the layer `scope__conv1__BatchNorm`. Keras forbids '/' in a layer's name,
// and its PyTorch backend forbids '.', so "__" stands for '/'. The exact names are kept elsewhere
// (CHECKPOINT_FORMAT.md).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

struct KerasLayer {
  std::string name;                       // "resnet_v1_50__conv1"
  std::vector<std::string> weight_names;  // "resnet_v1_50__conv1/kernel:0", in Keras's order
  std::vector<size_t> variables;          // for each weight the index of its variable
};

// What Keras needs to rebuild the net of a checkpoint and to give each layer its weights.
struct KerasModel {
  std::string config;               // JSON: the attribute model_config
  std::vector<std::string> layers;  // its layers that have weights, in Keras's order
  std::string training;  // JSON: the attribute training_config; empty: the net is not compiled
};

// Said to Keras as its version: the dialect that its versions 2 and 3 both read.
inline constexpr char kKerasVersion[] = "2.15.0";

// "net/conv1/weights" -> "weights", and what is before it, "net/conv1"; a name without a scope is
// both.
inline std::string_view LeafOf(std::string_view name) { return name.substr(name.rfind('/') + 1); }
inline std::string_view ScopeOf(std::string_view name) { return name.substr(0, name.rfind('/')); }

// The layer of a scope: "net/conv1" -> "net__conv1".
std::string KerasLayerName(std::string_view scope);

// Layers in the order in which their first variable comes. Weights in Keras's order: kernels, bias;
// gamma, beta, moving mean, moving variance; anything else after them, under its own name, as it
// comes. Throws DataError for names that are empty, twice there, too long, or hold empty parts.
std::vector<KerasLayer> MapToKeras(std::span<const std::string> variable_names);

}  // namespace carole::io
