// Names of the weights in files that Keras wrote. Pure functions.
//
// The result is the path of a weight from the outermost layer inwards: "conv1/kernel", or
// "mobilenet/conv1/kernel" for a layer of a model inside of another model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carole::io {

// Returns the names of the weights of a layer in the legacy layout, in the same order. `weights` is
// its attribute weight_names. Keras 3 writes "conv1/kernel" there, Keras 2 "conv1/kernel:0", and
// Keras 1 "conv1_W_1:0". Keras 1 wrote files that keras.applications still distributes. The names
// are unique if `weights` are.
std::vector<std::string> LegacyWeightNames(const std::string& layer,
                                           const std::vector<std::string>& weights);

// Returns the name of a weight that Keras 3 only numbers: "kernel" for number 0 of conv2d_12.
// `count` is the number of weights of the layer. `layer_class` is the class of the layer in snake
// case and may end with a number. If the class is unknown, returns the number itself.
std::string NameOfNumberedWeight(std::string_view layer_class, const std::string& number,
                                 size_t count);

// True if NameOfNumberedWeight() knows the class.
bool IsKnownLayerClass(std::string_view layer_class);

}  // namespace carole::io
