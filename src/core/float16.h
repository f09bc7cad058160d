// The 16-bit floating-point types as tensors store them. All arithmetic is in fp32.
//
// Conversions from fp32 round to nearest, ties to even; NaN stays NaN. Conversions to fp32 are
// exact. Those of Bf16 are always inlined, because *_simd.cpp files use them. An out-of-line copy
// compiled for a newer CPU could otherwise be linked into the rest of the program.
#pragma once

#include <bit>
#include <cstdint>

namespace carole {

// bfloat16: the upper 16 bits of an fp32. It has the range of fp32, with 8 significant bits.
struct Bf16 {
  uint16_t bits;

  Bf16() = default;
  // This has no branches, so that the compiler vectorizes loops over it.
  [[gnu::always_inline]] explicit Bf16(float value) {
    const auto wide = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;
    const bool is_nan = (wide & 0x7FFFFFFF) > 0x7F800000;
    bits = static_cast<uint16_t>(is_nan ? (wide >> 16) | 0x40 : rounded);
  }
  [[gnu::always_inline]] operator float() const {
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
};

// IEEE 754 binary16. It has 5 exponent bits: the largest value is 65504, and values below 2^-14 are
// subnormal and lose precision.
struct Fp16 {
  uint16_t bits;

  Fp16() = default;
  explicit Fp16(float value) {
    const auto wide = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = wide & 0x7FFFFFFF;
    uint32_t narrow;
    if (magnitude > 0x7F800000) {
      narrow = 0x7E00;                     // NaN
    } else if (magnitude >= 0x477FF000) {  // 65520 and more round to infinity
      narrow = 0x7C00;
    } else if (magnitude < 0x38800000) {
      // Subnormal: adding 1/2 shifts out the bits that fp16 does not have, and rounds.
      narrow = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
    } else {
      narrow = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
    }
    bits = static_cast<uint16_t>(narrow | ((wide >> 16) & 0x8000));
  }
  operator float() const {
    const uint32_t magnitude = bits & 0x7FFF, sign = (bits & uint32_t{0x8000}) << 16;
    float value;
    if (magnitude >= 0x7C00) {
      value = std::bit_cast<float>((magnitude << 13) + 0x70000000);  // infinity, NaN
    } else if (magnitude < 0x400) {
      value = static_cast<float>(magnitude) * 0x1p-24f;
    } else {
      value = std::bit_cast<float>((magnitude << 13) + 0x38000000);
    }
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
};

}  // namespace carole
