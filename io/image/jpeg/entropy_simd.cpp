// Entropy decoding of baseline JPEG (ITU-T T.81, F.2.2). Compiled once for each x86-64 level
// (carole_simd_source). The essay in huffman.cpp explains the tables and the loop.
#include "io/image/jpeg/entropy_simd.h"

#include <cstring>

namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE {
namespace {

#define CAROLE_INLINE inline __attribute__((always_inline))

// Converts a zigzag index to a natural index. An index outside of the block gives the dummy
// slot 64.
struct NaturalOrder {
  uint8_t natural_index[64 + 2 * kDiscard];
};

constexpr NaturalOrder MakeNaturalOrder() {
  NaturalOrder order{};
  int row = 0;
  int column = 0;
  for (int i = 0; i < kBlockCoefficients; ++i) {
    order.natural_index[i] = static_cast<uint8_t>(row * 8 + column);
    const bool up = (row + column) % 2 == 0;
    if (up && column == 7) {
      ++row;
    } else if (!up && row == 7) {
      ++column;
    } else {
      row += up ? (row == 0 ? 0 : -1) : 1;
      column += up ? 1 : (column == 0 ? 0 : -1);
    }
  }
  for (int i = kBlockCoefficients; i < 64 + 2 * kDiscard; ++i)
    order.natural_index[i] = kBlockCoefficients;
  return order;
}

constexpr NaturalOrder kNatural = MakeNaturalOrder();

// Makes at least 56 bits valid.
CAROLE_INLINE void Refill(BitReader& r) {
  uint64_t word;
  std::memcpy(&word, r.next, sizeof word);
  r.bits |= __builtin_bswap64(word) >> r.count;
  r.next += (63 - r.count) >> 3;
  r.count |= 56;
}

// Consumes bits; their number is in the low six bits of `length`.
CAROLE_INLINE void Consume(BitReader& r, uint64_t length) {
  r.bits <<= length & 63;
  r.count -= static_cast<uint32_t>(length & 63);
}

// Reads a value of `size` bits (0..15). As T.81's EXTEND says, the lower half of the codes stands
// for negative values: with 2 bits, 00 01 10 11 are -3 -2 2 3.
CAROLE_INLINE int ReadValue(BitReader& r, int size) {
  const auto value = static_cast<int>(r.bits >> 1 >> (63 - size));
  const int negative = ~static_cast<int>(static_cast<int64_t>(r.bits) >> 63);
  Consume(r, size);
  return value - (((1 << size) - 1) & negative);
}

struct Symbol {
  int length;  // of the symbol's code; 0: the code is unknown
  int symbol;
};

// Finds the symbol of a code of any length, for codes that are too long for the tables.
__attribute__((noinline)) Symbol FindSymbol(uint64_t bits, const CanonicalCode& canonical) {
  const auto head = static_cast<uint32_t>(bits >> 48);
  for (int length = 1; length <= 16; ++length) {
    if (head >= canonical.limit[length]) continue;
    const int index = static_cast<int>(head >> (16 - length)) + canonical.offset[length];
    return {length, canonical.code.symbols[index]};
  }
  return {0, 0};
}

constexpr int kInvalid = -1;

CAROLE_INLINE int DecodeDcDifference(BitReader& r, const DcTable& table, bool& valid) {
  const int known = table.sizes[r.bits >> (64 - kDcBits)];
  int size = known & 15;
  if (known != 0) [[likely]] {
    Consume(r, known >> 4);
  } else {
    const Symbol found = FindSymbol(r.bits, table.canonical);
    valid &= found.length != 0;
    Consume(r, found.length);
    size = found.symbol;
  }
  return ReadValue(r, size);
}

// Decodes one symbol without the table's value, because `step` was a long symbol or did not fit
// into the block. `index` is the zigzag index of the last coefficient. Returns the new index,
// kBlockCoefficients if the block ends here, or kInvalid.
CAROLE_INLINE int DecodeOneSymbol(BitReader& r, const AcTable& table, AcStep step, int index,
                                  int16_t* block) {
  Refill(r);
  Symbol found{static_cast<int>(step >> 32 & 0xff), static_cast<int>(step >> 48)};
  if ((step >> 24 & kLongSymbol) == 0 || found.length == 0) [[unlikely]] {
    found = FindSymbol(r.bits, table.canonical);
    if (found.length == 0) return kInvalid;
  }
  Consume(r, found.length);
  if (found.symbol == 0) return kBlockCoefficients;
  const int size = found.symbol & 15;
  index += (found.symbol >> 4) + 1;
  const bool is_known = size != 0 || found.symbol == 0xf0;
  if (index >= kBlockCoefficients || !is_known) [[unlikely]]
    return kInvalid;
  block[kNatural.natural_index[index]] = static_cast<int16_t>(ReadValue(r, size));
  return index;
}

constexpr int kStepsPerRefill = 5;  // each consumes at most kAcBits
static_assert(kStepsPerRefill * kAcBits <= 56);

// Decodes the AC coefficients of a block that holds zeros. Returns the zigzag index of the last
// coefficient, or kInvalid.
CAROLE_INLINE int DecodeBlock(BitReader& r, const AcTable& table, int16_t* block) {
  int index = 0;
  while (index < kBlockCoefficients - 1) {
    Refill(r);
    int next_index;
    AcStep step;
#pragma GCC unroll 5
    for (int i = 0; i < kStepsPerRefill; ++i) {
      step = table.steps[r.bits >> (64 - kAcBits)];
      block[kNatural.natural_index[index + (step >> 8 & 0xff)]] = static_cast<int16_t>(step >> 32);
      block[kNatural.natural_index[index + (step >> 16 & 0xff)]] = static_cast<int16_t>(step >> 48);
      next_index = index + static_cast<int>(step >> 24 & 0xff);
      if (next_index >= kBlockCoefficients - 1) break;
      Consume(r, step);
      index = next_index;
    }
    if (next_index < kBlockCoefficients - 1) continue;
    // Coefficients outside of the block went to the dummy slot; those inside are correct in any
    // case. So it is enough to check here where the block ends.
    const bool ends = (step >> 24 & (kEndOfBlock | kLongSymbol)) == kEndOfBlock;
    if (ends ? next_index < kEndOfBlock + kBlockCoefficients - 1
             : next_index == kBlockCoefficients - 1) [[likely]] {
      Consume(r, step);
      return next_index & 63;
    }
    const int reached = DecodeOneSymbol(r, table, step, index, block);
    if (reached == kInvalid) return kInvalid;
    if (reached == kBlockCoefficients) return index;
    index = reached;
  }
  return index;
}

// Parses the AC coefficients of a block without storing them. Returns false if they are not valid.
CAROLE_INLINE bool SkipBlock(BitReader& r, const AcTable& table) {
  int index = 0;
  while (index < kBlockCoefficients - 1) {
    Refill(r);
    int next_index;
    unsigned step;
#pragma GCC unroll 5
    for (int i = 0; i < kStepsPerRefill; ++i) {
      step = table.skips[r.bits >> (64 - kAcBits)];
      next_index = index + static_cast<int>(step >> 8);
      if (next_index >= kBlockCoefficients - 1) break;
      Consume(r, step);
      index = next_index;
    }
    if (next_index < kBlockCoefficients - 1) continue;
    const bool ends = (step >> 8 & (kEndOfBlock | kLongSymbol)) == kEndOfBlock;
    if (ends ? next_index < kEndOfBlock + kBlockCoefficients - 1
             : next_index == kBlockCoefficients - 1) [[likely]] {
      Consume(r, step);
      return true;
    }
    int16_t discarded[kBlockStride];
    const AcStep one = table.steps[r.bits >> (64 - kAcBits)];
    index = DecodeOneSymbol(r, table, one, index, discarded);
    if (index == kInvalid) return false;
  }
  return true;
}

// Parses one MCU. With kStore, the coefficients of wanted blocks go to slot `index` of the blocks.
template <bool kStore>
CAROLE_INLINE bool DecodeMcu(const Mcu& mcu, int index, BitReader& r, DcValues& dc) {
  bool valid = true;
  for (int i = 0; i < mcu.num_blocks; ++i) {
    const McuBlock& b = mcu.blocks[i];
    Refill(r);
    const int value = dc[b.component] + DecodeDcDifference(r, *b.dc_table, valid);
    dc[b.component] = value;
    valid &= value == static_cast<int16_t>(value);
    if (!kStore || b.coefficients == nullptr) {
      valid &= SkipBlock(r, *b.ac_table);
      continue;
    }
    const int at = b.step * index;
    int16_t* block = b.coefficients + at * kBlockStride;
    std::memset(block, 0, kBlockCoefficients * sizeof *block);
    const int last = DecodeBlock(r, *b.ac_table, block);
    block[0] = static_cast<int16_t>(value);
    valid &= last >= 0;
    b.last_nonzero[at] = static_cast<uint8_t>(last);
  }
  return valid && r.left() >= 0;
}

bool DecodeMcus(const Mcu& mcu, int first, int count, BitReader& reader, DcValues& dc) {
  BitReader r = reader;
  for (int i = first; i < first + count; ++i) {
    if (!DecodeMcu<true>(mcu, i, r, dc)) return false;
  }
  reader = r;
  return true;
}

bool SkipMcus(const Mcu& mcu, int64_t count, BitReader& reader, DcValues& dc) {
  BitReader r = reader;
  for (int64_t i = 0; i < count; ++i) {
    if (!DecodeMcu<false>(mcu, 0, r, dc)) return false;
  }
  reader = r;
  return true;
}

}  // namespace

EntropyKernels MakeEntropyKernels() { return {.decode = DecodeMcus, .skip = SkipMcus}; }

}  // namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE
