// Damages files.
#pragma once

#include <cstring>
#include <fstream>
#include <string>

#include "tests/support/subprocess.h"

namespace carole::testing {

inline void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

inline void FlipBit(const std::string& path, size_t offset) {
  std::string content = ReadText(path);
  content.at(offset) ^= 1;
  WriteFile(path, content);
}

// Where the index-th record of a TFRecord file begins.
inline size_t OffsetOfRecord(const std::string& content, int index) {
  size_t offset = 0;
  for (; index > 0; --index) {
    uint64_t length = 0;
    std::memcpy(&length, content.data() + offset, sizeof length);
    offset += length + 16;
  }
  return offset;
}

}  // namespace carole::testing
