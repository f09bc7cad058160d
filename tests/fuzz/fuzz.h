// What fuzz targets share. A target gives bytes to a parser; only the errors that are meant for bad
// input may come out of it: anything else ends the process, and libFuzzer keeps the bytes.
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

// Runs parse(); Expected is what bad input throws.
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
