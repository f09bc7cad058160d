// CRC-32C (Castagnoli), as TFRecords, event files and TensorFlow's tables use it.
#pragma once

#include <cstdint>
#include <string_view>

namespace carole::io {

// crc of `bytes`; to go on after earlier bytes pass their crc. Crc32c("123456789") == 0xE3069283.
uint32_t Crc32c(std::string_view bytes, uint32_t crc = 0);

// A crc that is stored beside its data is masked, because the crc of bytes that hold their own crc
// is degenerate.
constexpr uint32_t MaskCrc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

constexpr uint32_t UnmaskCrc(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8u;
  return (rotated >> 17) | (rotated << 15);
}

inline uint32_t MaskedCrc32c(std::string_view bytes) { return MaskCrc(Crc32c(bytes)); }

}  // namespace carole::io
