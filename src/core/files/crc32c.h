// CRC-32C (Castagnoli): the checksum of TFRecords, event files and TensorFlow's checkpoints.
#pragma once

#include <cstdint>
#include <string_view>

namespace carole {

// Returns the checksum of the bytes. Crc32c("123456789") == 0xE3069283.
uint32_t Crc32c(std::string_view bytes);

// Returns the checksum in the masked form in which these formats store it next to the data. The
// checksum of bytes that contain their own unmasked checksum would be useless.
inline uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

}  // namespace carole
