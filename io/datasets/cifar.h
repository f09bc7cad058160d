// Reads CIFAR-10's binary batch files. A file is a sequence of records (10000 in the official
// files). A record is a label byte and three planes (red, green, blue) of 32x32 bytes.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/files/bytes.h"

namespace carole::io {

inline constexpr int kCifarSide = 32;
inline constexpr int64_t kCifarRecordBytes = 1 + 3 * kCifarSide * kCifarSide;

// Returns the whole file. Throws DataError unless it holds one or more complete records.
std::string ReadCifarBatch(const Source& file);

// Converts one record from planes to (32, 32, 3) pixels. `record` begins with kCifarRecordBytes
// bytes of it; `out` has space for 3072 bytes. Returns the record's label, which is not checked.
int CifarImage(std::string_view record, uint8_t* out);

}  // namespace carole::io
