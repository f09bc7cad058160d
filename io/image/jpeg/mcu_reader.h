// Walks over the minimum coded units of a baseline scan, from restart marker to restart marker.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "io/image/jpeg/entropy_simd.h"

namespace carole::io::jpeg {

class McuReader {
 public:
  McuReader();

  // `bytes`, which begin behind the scan's header, must outlive the reading. restart_interval in
  // units; 0: none.
  void Open(std::string_view bytes, int restart_interval, const Mcu& mcu);

  // Decodes the next `count` units to the first places of Mcu's blocks. False when anything is not
  // as it should be: nothing may be called then but Open().
  bool Keep(int count);
  // Leaves out so many.
  bool Skip(int64_t count);

 private:
  // Takes the stuffed zeros out of the bytes up to the next marker.
  void NextSegment();
  bool Restart();
  // run(n, done) decodes n units after `done` of this call.
  template <typename Run>
  bool Advance(int64_t count, const Run& run);

  EntropyKernels kernels_;
  Mcu mcu_;
  std::string_view bytes_;  // that are not in a segment yet
  int64_t restart_interval_ = 0;
  int64_t until_restart_ = 0;
  int restarts_ = 0;
  std::vector<uint8_t> segment_;
  BitReader reader_;
  DcValues dc_{};
};

}  // namespace carole::io::jpeg
