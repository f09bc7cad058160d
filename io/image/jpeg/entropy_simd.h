// The inner loops of entropy decoding, compiled once for each x86-64 level. They mostly shift by
// variable amounts, and BMI2 has faster instructions for that.
#pragma once

#include <cstdint>

#include "io/image/jpeg/huffman.h"

namespace carole::io::jpeg {

// A block holds 64 coefficients in natural (row-major) order, not yet multiplied by the quantizers.
// Slot 64 after them is a dummy: coefficients that do not exist are written there.
inline constexpr int kBlockCoefficients = 64;
inline constexpr int kBlockStride = 80;  // in int16, from block to block: whole vectors

// BitReader may read this many bytes after the end: more than a minimum coded unit takes.
inline constexpr int kEntropySlack = 4096;

// Reads the bits of a segment, whose stuffed zeros are already removed.
struct BitReader {
  uint64_t bits = 0;   // the next bits, from the most significant bit on
  uint32_t count = 0;  // at least this many of `bits` are valid
  const uint8_t* next = nullptr;
  const uint8_t* end = nullptr;  // kEntropySlack zeros follow

  // Number of bits that are not consumed yet; negative after the end.
  int64_t left() const { return (end - next) * 8 + static_cast<int64_t>(count); }
};

// One block of the minimum coded unit (MCU), with the memory for this block in several MCUs.
struct McuBlock {
  const DcTable* dc_table = nullptr;
  const AcTable* ac_table = nullptr;
  int component = 0;
  // Coefficients of this block in the first MCU. In MCU i they are i * step * kBlockStride further.
  // Null: the block is not wanted and is skipped.
  int16_t* coefficients = nullptr;
  // For each of these blocks, the zigzag index of the last coefficient that may differ from 0.
  uint8_t* last_nonzero = nullptr;
  int step = 0;  // in blocks, from one MCU to the next
};

inline constexpr int kMaxMcuBlocks = 6;  // 4:2:0
// The blocks of a minimum coded unit in the order of the stream.
struct Mcu {
  McuBlock blocks[kMaxMcuBlocks];
  int num_blocks = 0;
};

// The last DC value of each component. A stream codes the difference from it.
using DcValues = int32_t[3];

struct EntropyKernels {
  // Decodes `count` MCUs; the first one goes to slot `first` of the Mcu's blocks. Returns false if
  // the stream is not valid: an unknown code, a coefficient outside of the block, or bits after the
  // end.
  bool (*decode)(const Mcu& mcu, int first, int count, BitReader& reader, DcValues& dc);
  // Like decode, but does not store the coefficients.
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
