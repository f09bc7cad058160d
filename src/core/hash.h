// 64-bit FNV-1a, for names, plans and weights. Not for untrusted input.
#pragma once

#include <cstdint>
#include <string_view>

namespace carole {

inline constexpr uint64_t kFnvOffset = 0xcbf29ce484222325ULL;

constexpr uint64_t Fnv1a64(std::string_view bytes, uint64_t hash = kFnvOffset) {
  for (char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace carole
