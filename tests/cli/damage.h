// Damages files and the memory of running processes.
#pragma once

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

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

// Flips the lowest bit of `pattern` everywhere in the writable memory of the process. Returns the
// number of places.
inline int FlipBitInMemory(pid_t process, std::string_view pattern) {
  const std::string proc = "/proc/" + std::to_string(process);
  std::fstream memory(proc + "/mem", std::ios::binary | std::ios::in | std::ios::out);
  std::ifstream maps(proc + "/maps");
  int places = 0;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    size_t begin = 0, end = 0;
    std::string access;
    words >> std::hex >> begin >> std::ws;
    words.ignore(1, '-') >> end >> access;
    if (!access.starts_with("rw")) continue;
    std::string content(end - begin, '\0');
    memory.clear();
    memory.seekg(static_cast<std::streamoff>(begin)).read(content.data(), end - begin);
    for (size_t at = 0; (at = content.find(pattern, at)) != std::string::npos; ++at) {
      memory.clear();
      memory.seekp(static_cast<std::streamoff>(begin + at)).put(pattern[0] ^ 1).flush();
      if (memory) ++places;
    }
  }
  return places;
}

// Returns the offset of a record in the contents of a TFRecord file.
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
