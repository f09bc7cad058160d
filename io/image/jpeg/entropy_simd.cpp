// Compiled once for each x86-64 level (carole_simd_source). ITU-T T.81, F.2.2.
#include "io/image/jpeg/entropy_simd.h"

#include <cstring>

namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE {
namespace {

#define CAROLE_INLINE inline __attribute__((always_inline))

// Zigzag order to natural order. What lies beyond the block goes to the place behind it.
struct NaturalOrder {
  uint8_t places[64 + 2 * kNowhere];
};

constexpr NaturalOrder MakeNaturalOrder() {
  NaturalOrder order{};
  int row = 0;
  int column = 0;
  for (int i = 0; i < kBlockCoefficients; ++i) {
    order.places[i] = static_cast<uint8_t>(row * 8 + column);
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
  for (int i = kBlockCoefficients; i < 64 + 2 * kNowhere; ++i) order.places[i] = kBlockCoefficients;
  return order;
}

constexpr NaturalOrder kNatural = MakeNaturalOrder();

CAROLE_INLINE void Refill(BitReader& r) {
  uint64_t word;
  std::memcpy(&word, r.next, sizeof word);
  r.bits |= __builtin_bswap64(word) >> r.count;
  r.next += (63 - r.count) >> 3;
  r.count |= 56;
}

// `length` in its low six bits.
CAROLE_INLINE void Drop(BitReader& r, uint64_t length) {
  r.bits <<= length & 63;
  r.count -= static_cast<uint32_t>(length & 63);
}

// The next `size` bits (0..15) as T.81's EXTEND has them: the lower half stands for negatives.
CAROLE_INLINE int TakeValue(BitReader& r, int size) {
  const auto value = static_cast<int>(r.bits >> 1 >> (63 - size));
  const int negative = ~static_cast<int>(static_cast<int64_t>(r.bits) >> 63);
  Drop(r, size);
  return value - (((1 << size) - 1) & negative);
}

struct Symbol {
  int length;  // of its code; 0: unknown
  int symbol;
};

__attribute__((noinline)) Symbol FindSymbol(uint64_t bits, const CanonicalCode& canonical) {
  const auto head = static_cast<uint32_t>(bits >> 48);
  for (int length = 1; length <= 16; ++length) {
    if (head >= canonical.limit[length]) continue;
    const int place = static_cast<int>(head >> (16 - length)) + canonical.offset[length];
    return {length, canonical.code.symbols[place]};
  }
  return {0, 0};
}

constexpr int kIrregular = -1;

CAROLE_INLINE int TakeDcDifference(BitReader& r, const DcTable& table, bool& regular) {
  const int known = table.sizes[r.bits >> (64 - kDcBits)];
  int size = known & 15;
  if (known != 0) [[likely]] {
    Drop(r, known >> 4);
  } else {
    const Symbol found = FindSymbol(r.bits, table.canonical);
    regular &= found.length != 0;
    Drop(r, found.length);
    size = found.symbol;
  }
  return TakeValue(r, size);
}

// One symbol where a table's step does not fit. Returns the place that was reached, kIrregular, or
// kBlockCoefficients when the block ends here.
CAROLE_INLINE int TakeOneSymbol(BitReader& r, const AcTable& table, AcStep step, int place,
                                int16_t* block) {
  Refill(r);
  Symbol found{static_cast<int>(step >> 32 & 0xff), static_cast<int>(step >> 48)};
  if ((step >> 24 & kLongSymbol) == 0 || found.length == 0) [[unlikely]] {
    found = FindSymbol(r.bits, table.canonical);
    if (found.length == 0) return kIrregular;
  }
  Drop(r, found.length);
  if (found.symbol == 0) return kBlockCoefficients;
  const int size = found.symbol & 15;
  place += (found.symbol >> 4) + 1;
  const bool is_known = size != 0 || found.symbol == 0xf0;
  if (place >= kBlockCoefficients || !is_known) [[unlikely]]
    return kIrregular;
  block[kNatural.places[place]] = static_cast<int16_t>(TakeValue(r, size));
  return place;
}

constexpr int kStepsPerRefill = 5;  // of at most kAcBits each
static_assert(kStepsPerRefill * kAcBits <= 56);

// The AC coefficients of a block of zeros. Returns the place of the last one, or kIrregular.
CAROLE_INLINE int TakeBlock(BitReader& r, const AcTable& table, int16_t* block) {
  int place = 0;
  while (place < kBlockCoefficients - 1) {
    Refill(r);
    int gone_on;
    AcStep step;
#pragma GCC unroll 5
    for (int i = 0; i < kStepsPerRefill; ++i) {
      step = table.steps[r.bits >> (64 - kAcBits)];
      block[kNatural.places[place + (step >> 8 & 0xff)]] = static_cast<int16_t>(step >> 32);
      block[kNatural.places[place + (step >> 16 & 0xff)]] = static_cast<int16_t>(step >> 48);
      gone_on = place + static_cast<int>(step >> 24 & 0xff);
      if (gone_on >= kBlockCoefficients - 1) break;
      Drop(r, step);
      place = gone_on;
    }
    if (gone_on < kBlockCoefficients - 1) continue;
    // Coefficients beyond a full block went nowhere; those within it are right in any case.
    const bool ends = (step >> 24 & (kEndOfBlock | kLongSymbol)) == kEndOfBlock;
    if (ends ? gone_on < kEndOfBlock + kBlockCoefficients - 1 : gone_on == kBlockCoefficients - 1)
        [[likely]] {
      Drop(r, step);
      return gone_on & 63;
    }
    const int reached = TakeOneSymbol(r, table, step, place, block);
    if (reached == kIrregular) return kIrregular;
    if (reached == kBlockCoefficients) return place;
    place = reached;
  }
  return place;
}

CAROLE_INLINE bool SkipBlock(BitReader& r, const AcTable& table) {
  int place = 0;
  while (place < kBlockCoefficients - 1) {
    Refill(r);
    int gone_on;
    unsigned step;
#pragma GCC unroll 5
    for (int i = 0; i < kStepsPerRefill; ++i) {
      step = table.skips[r.bits >> (64 - kAcBits)];
      gone_on = place + static_cast<int>(step >> 8);
      if (gone_on >= kBlockCoefficients - 1) break;
      Drop(r, step);
      place = gone_on;
    }
    if (gone_on < kBlockCoefficients - 1) continue;
    const bool ends = (step >> 8 & (kEndOfBlock | kLongSymbol)) == kEndOfBlock;
    if (ends ? gone_on < kEndOfBlock + kBlockCoefficients - 1 : gone_on == kBlockCoefficients - 1)
        [[likely]] {
      Drop(r, step);
      return true;
    }
    int16_t nowhere[kBlockStride];
    const AcStep one = table.steps[r.bits >> (64 - kAcBits)];
    place = TakeOneSymbol(r, table, one, place, nowhere);
    if (place == kIrregular) return false;
  }
  return true;
}

template <bool keep>
CAROLE_INLINE bool TakeMcu(const Mcu& mcu, int place, BitReader& r, DcValues& dc) {
  bool regular = true;
  for (int i = 0; i < mcu.num_blocks; ++i) {
    const McuBlock& b = mcu.blocks[i];
    Refill(r);
    const int value = dc[b.component] + TakeDcDifference(r, *b.dc_table, regular);
    dc[b.component] = value;
    regular &= value == static_cast<int16_t>(value);
    if (!keep || b.coefficients == nullptr) {
      regular &= SkipBlock(r, *b.ac_table);
      continue;
    }
    const int at = b.step * place;
    int16_t* block = b.coefficients + at * kBlockStride;
    std::memset(block, 0, kBlockCoefficients * sizeof *block);
    const int last = TakeBlock(r, *b.ac_table, block);
    block[0] = static_cast<int16_t>(value);
    regular &= last >= 0;
    b.last[at] = static_cast<uint8_t>(last);
  }
  return regular && r.left() >= 0;
}

bool Keep(const Mcu& mcu, int first, int count, BitReader& reader, DcValues& dc) {
  BitReader r = reader;
  for (int i = first; i < first + count; ++i) {
    if (!TakeMcu<true>(mcu, i, r, dc)) return false;
  }
  reader = r;
  return true;
}

bool Skip(const Mcu& mcu, int64_t count, BitReader& reader, DcValues& dc) {
  BitReader r = reader;
  for (int64_t i = 0; i < count; ++i) {
    if (!TakeMcu<false>(mcu, 0, r, dc)) return false;
  }
  reader = r;
  return true;
}

}  // namespace

EntropyKernels MakeEntropyKernels() { return {.keep = Keep, .skip = Skip}; }

}  // namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE
