// The element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace carole {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kU8 };

// Returns the size of an element in bytes.
constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// Whether this is a 16-bit floating-point type. Such values are stored and multiplied in 16 bits;
// their sums are accumulated in fp32.
constexpr bool IsNarrow(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

// Returns the name that flags and messages use.
constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF64:
      return "fp64";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "fp16";
    case DType::kI32:
      return "int32";
    case DType::kU8:
      return "uint8";
  }
  return "?";
}

}  // namespace carole
