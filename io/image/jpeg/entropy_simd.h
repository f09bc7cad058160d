// The inner loops of entropy decoding, once for each x86-64 level: shifts by variable amounts are
// what they do all the time, and BMI2 has better ones.
#pragma once

#include <cstdint>

#include "io/image/jpeg/huffman.h"

namespace carole::io::jpeg {

// Coefficients of a block, in natural order; one more takes what has no place. Multiplied by
// nothing yet.
inline constexpr int kBlockCoefficients = 64;
inline constexpr int kBlockStride = 80;  // of int16, from block to block: whole vectors

// Readers may read this far beyond the end: more than a minimum coded unit takes.
inline constexpr int kEntropySlack = 4096;

// Bits of a segment whose stuffed zeros have been taken out.
struct BitReader {
  uint64_t bits = 0;   // the next ones, from the top
  uint32_t count = 0;  // of `bits` that are valid; at least so many
  const uint8_t* next = nullptr;
  const uint8_t* end = nullptr;  // kEntropySlack zeros follow

  // Bits that have not been used up; negative beyond the end.
  int64_t left() const { return (end - next) * 8 + static_cast<int64_t>(count); }
};

// A block of the minimum coded unit.
struct McuBlock {
  const DcTable* dc_table = nullptr;
  const AcTable* ac_table = nullptr;
  int component = 0;
  // Where the block of the first unit goes, that of the next one is `step` blocks on; null: nobody
  // wants it.
  int16_t* coefficients = nullptr;
  // Of the same: the place in zigzag order of the last coefficient that may differ from 0.
  uint8_t* last = nullptr;
  int step = 0;
};

inline constexpr int kMaxMcuBlocks = 6;  // 4:2:0
struct Mcu {
  McuBlock blocks[kMaxMcuBlocks];
  int num_blocks = 0;
};

// DC values that the next differences are added to.
using DcValues = int32_t[3];

struct EntropyKernels {
  // Decode `count` minimum coded units; the first one is at place `first` of Mcu's blocks.
  // False at the first irregularity: an unknown code, a place beyond the block, bits beyond the
  // end.
  bool (*keep)(const Mcu& mcu, int first, int count, BitReader& reader, DcValues& dc);
  // The same without the coefficients.
  bool (*skip)(const Mcu& mcu, int64_t count, BitReader& reader, DcValues& dc);
};

namespace simd_v2 {
EntropyKernels MakeEntropyKernels();
}
namespace simd_v3 {
EntropyKernels MakeEntropyKernels();
}
namespace simd_v4 {
EntropyKernels MakeEntropyKernels();
}

}  // namespace carole::io::jpeg
