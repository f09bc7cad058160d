// CIFAR-10's binary batches: records (10000 in those that are distributed) of a label and three
// planes of 32x32 bytes.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/files/bytes.h"

namespace carole::io {

inline constexpr int kCifarSide = 32;
inline constexpr int64_t kCifarRecordBytes = 1 + 3 * kCifarSide * kCifarSide;

// The whole file. Throws DataError unless it holds whole records, one at least.
std::string ReadCifarBatch(const Source& file);

// One image of a batch, from planes to (32, 32, 3). `record` has kCifarRecordBytes bytes, `out`
// room for 3072. Returns the label as it stands in the record.
int CifarImage(std::string_view record, uint8_t* out);

}  // namespace carole::io
