// Reads and writes elements of tensors of any type as doubles.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "src/core/check.h"
#include "src/core/float16.h"
#include "src/tensor/tensor.h"

namespace carole::testing {

using Elements = std::vector<double>;

// Calls visit(first), where `first` points to the first element and has its type.
template <typename Visit>
void VisitElements(const Tensor& tensor, const Visit& visit) {
  switch (tensor.dtype) {
    case DType::kF32:
      return visit(tensor.as<float>());
    case DType::kF64:
      return visit(tensor.as<double>());
    case DType::kBF16:
      return visit(tensor.as<Bf16>());
    case DType::kF16:
      return visit(tensor.as<Fp16>());
    case DType::kI32:
      return visit(tensor.as<int32_t>());
    case DType::kU8:
      return visit(tensor.as<uint8_t>());
  }
}

// The elements in the order of memory.
inline Elements ReadElements(const Tensor& tensor) {
  Elements values(tensor.size());
  VisitElements(tensor, [&](const auto* from) { std::copy_n(from, values.size(), values.data()); });
  return values;
}

// Writes the elements in the order of memory.
template <typename From>
void Fill(const Tensor& tensor, const std::vector<From>& values) {
  CAROLE_CHECK_EQ(tensor.size(), static_cast<int64_t>(values.size()), "elements of {}",
                  tensor.shape.ToString());
  VisitElements(tensor, [&](auto* to) {
    using To = std::remove_pointer_t<decltype(to)>;
    std::transform(values.begin(), values.end(), to, [](From v) { return static_cast<To>(v); });
  });
}

}  // namespace carole::testing
