// Where libraries' scratch memory begins.
#pragma once

#include <cstddef>
#include <cstdint>

namespace carole::cuda {

// What libraries want of its address. It is more than plans give, so that a kernel asks for so many
// bytes more.
inline constexpr size_t kScratchAlignment = 256;

inline std::byte* AlignScratch(std::byte* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return memory + (kScratchAlignment - address % kScratchAlignment) % kScratchAlignment;
}

}  // namespace carole::cuda
