// Reads the minimum coded units (MCUs) of a baseline scan and handles its restart markers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "io/image/jpeg/entropy_simd.h"

namespace carole::io::jpeg {

// One per thread; keeps its memory from scan to scan.
class McuReader {
 public:
  McuReader();

  // Begins a scan. `bytes` begin after the scan's header and must outlive the reading.
  // `restart_interval` is a number of MCUs; 0: the scan has no restart markers. `mcu` says which
  // blocks an MCU has and where their coefficients go.
  void Open(std::string_view bytes, int restart_interval, const Mcu& mcu);

  // Decodes the next `count` MCUs to the first `count` slots of the Mcu's blocks. Returns false if
  // the stream is not valid; then only Open() may be called.
  bool Decode(int count);
  // Like Decode(), but does not store the coefficients.
  bool Skip(int64_t count);

 private:
  // Copies the bytes up to the next marker to segment_, without stuffed zeros.
  void NextSegment();
  // Continues after the next restart marker. Returns false if the marker is missing or wrong.
  bool Restart();
  // Calls run(n, done) for each part of `count` MCUs between restart markers: n MCUs, after `done`
  // MCUs of this call.
  template <typename Run>
  bool Advance(int64_t count, const Run& run);

  EntropyKernels kernels_;
  Mcu mcu_;
  std::string_view bytes_;  // the part of the scan that is not in segment_ yet
  int64_t restart_interval_ = 0;
  int64_t until_restart_ = 0;  // MCUs left before the next restart marker
  int restarts_ = 0;
  std::vector<uint8_t> segment_;
  BitReader reader_;
  DcValues dc_{};
};

}  // namespace carole::io::jpeg
