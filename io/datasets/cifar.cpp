#include "io/datasets/cifar.h"

#include <fmt/format.h>

#include "src/core/error.h"

namespace carole::io {

std::string ReadCifarBatch(const Source& file) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  const uint64_t bytes = file.size().value_or(0);
  if (bytes == 0 || bytes % kCifarRecordBytes != 0) {
    throw DataError(fmt::format(
        "[io.cifar] {}: wrong size: got {} bytes, want whole records of {}; re-copy the file",
        file.name(), bytes, kCifarRecordBytes));
  }
  return ReadAll(file, kMaxBytes);
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
