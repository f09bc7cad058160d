// Golden files of nets from PyTorch. They have PyTorch's names, shapes and order of elements:
// filters (K,C,R,S), matrices (K,C).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace carole::golden {

// Whether the values of this file come from PyTorch.
bool IsPyTorch(const nlohmann::json& golden);

// Translates names, shapes and positions of elements to those of our nets. Does nothing to files of
// other programs.
void TranslatePyTorch(nlohmann::json& golden);

// Returns PyTorch's name of one of our variables: "layer1/0/bn1/gamma" is "layer1.0.bn1.weight".
std::string PyTorchName(const std::string& name);

// The values of the formula that PyTorch's golden files use, in the order of our variables. Source:
// section 1 of the reference of today's nets.
std::vector<float> PyTorchFormula(const std::string& name, const Shape& tf_shape,
                                  double kernel_scale);

// Puts the values of a variable into PyTorch's order.
std::vector<float> InPyTorchOrder(const std::vector<float>& values, const Shape& tf_shape);

}  // namespace carole::golden
