// CRC-32C (Castagnoli), as TFRecords, event files and TensorFlow's tables use it.
#pragma once

#include <cstdint>
#include <string_view>

namespace carole {

// Crc32c("123456789") == 0xE3069283.
uint32_t Crc32c(std::string_view bytes);

// As it is stored beside its data: masked, because the crc of bytes that hold their own crc is
// degenerate.
inline uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

}  // namespace carole
