// A fast hash for our own data: names, plans and weights. It does not resist attacks, so do not use
// it on untrusted input.
#pragma once

#include <cstdint>
#include <string_view>

namespace carole {

// The hash of no bytes (FNV's offset basis).
inline constexpr uint64_t kFnvOffset = 0xcbf29ce484222325ULL;

// Returns the 64-bit FNV-1a hash of the bytes. To hash several pieces as one text, pass the result
// for the previous pieces as `hash`.
constexpr uint64_t Fnv1a64(std::string_view bytes, uint64_t hash = kFnvOffset) {
  for (char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace carole
