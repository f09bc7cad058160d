// Functions that the fuzz targets share. A target passes bytes to a parser. The parser may only
// throw the exception that is meant for bad input. Anything else ends the process, and libFuzzer
// keeps the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "src/core/error.h"
#include "src/core/files/bytes.h"

namespace carole::fuzz {

inline std::string_view ToText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline std::unique_ptr<Source> ToSource(const uint8_t* data, size_t size) {
  return std::make_unique<MemorySource>("input", std::string(ToText(data, size)));
}

// Runs parse(). `Expected` is the exception that it throws for bad input. Returns 0.
template <typename Expected, typename Parse>
int Run(Parse&& parse) {
  try {
    parse();
  } catch (const Expected&) {
    return 0;
  }
  return 0;
}

}  // namespace carole::fuzz
