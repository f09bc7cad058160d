// Alignment of the scratch memory that kernels pass to cuDNN and cuBLASLt.
#pragma once

#include <cstddef>
#include <cstdint>

namespace carole::cuda {

// The alignment that the libraries require, in bytes. A kernel's workspace is aligned to less
// (Buffer::kAlignment), so the kernel asks for this many additional bytes.
inline constexpr size_t kScratchAlignment = 256;

// Returns the first aligned address at or after `memory`.
inline std::byte* AlignScratch(std::byte* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return memory + (kScratchAlignment - address % kScratchAlignment) % kScratchAlignment;
}

}  // namespace carole::cuda
