// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace carole {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kU8 };

// Bytes of an element.
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

// The 16-bit floats: stored and multiplied so, while sums are fp32.
constexpr bool IsNarrow(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

// As flags and messages spell it.
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
