#include "io/image/jpeg/mcu_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "src/core/simd.h"

namespace carole::io::jpeg {

McuReader::McuReader()
    : kernels_(PickSimd(simd_v2::MakeEntropyKernels, simd_v3::MakeEntropyKernels,
                        simd_v4::MakeEntropyKernels)()) {}

void McuReader::Open(std::string_view bytes, int restart_interval, const Mcu& mcu) {
  mcu_ = mcu;
  bytes_ = bytes;
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  restart_interval_ = restart_interval > 0 ? restart_interval : kNever;
  restarts_ = 0;
  if (segment_.size() < bytes.size() + kEntropySlack) segment_.resize(bytes.size() + kEntropySlack);
  NextSegment();
}

bool McuReader::Decode(int count) {
  return Advance(count, [&](int64_t n, int64_t done) {
    return kernels_.decode(mcu_, static_cast<int>(done), static_cast<int>(n), reader_, dc_);
  });
}

bool McuReader::Skip(int64_t count) {
  return Advance(count, [&](int64_t n, int64_t) { return kernels_.skip(mcu_, n, reader_, dc_); });
}

template <typename Run>
bool McuReader::Advance(int64_t count, const Run& run) {
  for (int64_t done = 0; done < count;) {
    if (until_restart_ == 0 && !Restart()) return false;
    const int64_t n = std::min(count - done, until_restart_);
    if (!run(n, done)) return false;
    until_restart_ -= n;
    done += n;
  }
  return true;
}

void McuReader::NextSegment() {
  uint8_t* to = segment_.data();
  const char* from = bytes_.data();
  const char* const end = from + bytes_.size();
  while (from < end) {
    const auto* stop = static_cast<const char*>(std::memchr(from, 0xff, end - from));
    const bool stuffed = stop != nullptr && stop + 1 < end && stop[1] == 0;
    const size_t count = (stop == nullptr ? end : stop + (stuffed ? 1 : 0)) - from;
    std::memcpy(to, from, count);
    to += count;
    from += count;
    if (!stuffed) break;
    ++from;
  }
  std::memset(to, 0, kEntropySlack);
  bytes_.remove_prefix(from - bytes_.data());
  reader_ = {.next = segment_.data(), .end = to};
  until_restart_ = restart_interval_;
  std::fill(std::begin(dc_), std::end(dc_), 0);
}

// The segment must have been read to its last byte, and the marker must have the expected number.
bool McuReader::Restart() {
  const char marker[] = {'\xff', static_cast<char>(0xd0 + restarts_++ % 8)};
  if (reader_.left() >= 8 || !bytes_.starts_with(std::string_view(marker, 2))) return false;
  bytes_.remove_prefix(2);
  NextSegment();
  return true;
}

}  // namespace carole::io::jpeg
