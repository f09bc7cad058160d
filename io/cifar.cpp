#include "io/cifar.h"

#include <fmt/format.h>

#include "src/core/error.h"

namespace carole::io {

std::string ReadCifarBatch(const Source& file) {
  constexpr uint64_t kWant = kCifarBatchRecords * kCifarRecordBytes;
  if (file.size() != kWant) {
    throw DataError(fmt::format(
        "[io.cifar] {}: wrong size: got {} bytes, want {} ({} records of {}); "
        "copy the batch again",
        file.name(), file.size().value_or(0), kWant, kCifarBatchRecords, kCifarRecordBytes));
  }
  return ReadAll(file, kWant);
}

int CifarImage(std::string_view record, uint8_t* out) {
  constexpr int kPlane = kCifarSide * kCifarSide;
  const auto* planes = reinterpret_cast<const uint8_t*>(record.data()) + 1;
  for (int i = 0; i < kPlane; ++i) {
    for (int c = 0; c < 3; ++c) out[3 * i + c] = planes[c * kPlane + i];
  }
  return static_cast<uint8_t>(record[0]);
}

}  // namespace carole::io
