// Huffman decoding of JPEG by tables that decode two coefficients per lookup.
//
// The problem. Entropy decoding is serial: a code's length must be known before the next code can
// be read, so it cannot be vectorized. For each coefficient the plain method looks up the symbol,
// shifts, extracts the value, extends its sign and shifts again. Its branches depend on the data,
// so they are hard to predict.
//
// The code (T.81, F.1.2.2). The 63 AC coefficients of a block come in zigzag order. A symbol
// RRRRSSSS means: RRRR zeros, then a coefficient whose value has SSSS bits. The value bits follow
// the code directly. Symbol 00 ends the block (EOB); symbol f0 means 16 zeros.
//
// The idea. Code and value of a small coefficient are short. So the table is indexed by the next 11
// bits (kAcBits), and each entry (AcStep) holds what these bits decode to, values included: one
// symbol, or two if both fit. The loop per lookup is then (entropy_simd.cpp):
//     step = steps[next 11 bits]
//     block[natural(index + first index)]  = first value       two stores, never a branch
//     block[natural(index + second index)] = second value
//     index += advance;  consume `length` bits
//
// Example, with the standard code of luminance (T.81, table K.5): symbol 11 has the code 1100,
// symbol 02 has 01, EOB has 1010.
//   bits        1100 1 | 01 11 | xx            (xx: any bits of what follows)
//   decoded     1 zero, then +1 | no zero, then +3 (binary 11)
//   entry       length 9, first index 2, second index 3, advance 3, values 1 and 3
// All 4 entries 11001 0111 xx of the table are equal. If EOB follows the first symbol instead:
//   bits        1100 1 | 1010 | xx
//   entry       length 9, first = second index 2, advance 2 + kEndOfBlock, values 1 and 1
//
// Tricks that keep branches away:
//   - A step with one coefficient stores it twice, at the same index.
//   - A step without coefficient (EOB alone, long symbols) stores to index + kDiscard. The zigzag
//     table maps all indices of 64 and more to a dummy slot after the block. So does a coefficient
//     that a damaged stream puts outside of the block.
//   - kEndOfBlock (64) and kLongSymbol (128) are large advances. One comparison, index + advance >=
//     63, finds the end of the block, a full block, a long symbol and damage. The code after the
//     loop tells them apart.
//   - A refill makes 56 bits valid. That is enough for 5 steps of 11 bits, so the loop is unrolled
//     5 times and does not test whether bits are left.
//
// Codes that do not fit. A code of up to 11 bits whose value does not fit (symbol 08: code
// 1111110110 and 8 value bits) gives a kLongSymbol with length and symbol of the code. For codes of
// 12 to 16 bits the entry is unknown (length 0), and CanonicalCode finds the symbol: a loop over
// the lengths compares the next 16 bits with limit[n]. Long codes are rare by construction.
//
// How the tables are filled:
//   1. SingleSymbols(): one symbol per entry.
//   2. JoinSymbols(): if an entry leaves bits over, look up the rest in the table of step 1. The
//      missing low bits are filled with zeros, so the second symbol counts only if its length fits
//      into the remaining bits.
//   3. JoinSkips(): the same once more with the joined steps, for blocks whose coefficients are not
//      wanted: up to four symbols, only their length and advance.
// `steps` takes 16 KiB and `skips` 4 KiB. Filling them costs time for each new code, so a table
// keeps its code and is filled again only for another one. Most encoders use the standard codes.
#include "io/image/jpeg/huffman.h"

#include <algorithm>

namespace carole::io::jpeg {
namespace {

constexpr uint64_t kLength = 0xff;
constexpr uint64_t kFirstValue = uint64_t{0xffff} << 32;
constexpr uint64_t kSecondValue = uint64_t{0xffff} << 48;
constexpr int kTooLongToJoin = 63;  // length of a kLongSymbol: no other symbol fits next to it

uint64_t MakeStep(int length, int index, int advance, uint16_t first, uint16_t second) {
  return static_cast<uint64_t>(length) | static_cast<uint64_t>(index) << 8 |
         static_cast<uint64_t>(index) << 16 | static_cast<uint64_t>(advance) << 24 |
         static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(second) << 48;
}

// Returns false if there are more codes of some length than bits can represent.
bool MakeCanonical(const HuffmanCode& code, CanonicalCode& canonical) {
  canonical.code = code;
  uint32_t next = 0;  // the next code
  int index = 0;      // index of its symbol
  for (int length = 1; length <= 16; ++length) {
    canonical.offset[length] = index - static_cast<int32_t>(next);
    next += code.counts[length];
    index += code.counts[length];
    if (code.counts[length] > 0 && next >= 1u << length) return false;  // all ones is not a code
    canonical.limit[length] = next << (16 - length);
    next <<= 1;
  }
  return index <= static_cast<int>(code.symbols.size());
}

// Calls visit(code, length, symbol) for all codes of up to `longest` bits.
template <typename Visit>
void ForEachCode(const HuffmanCode& code, int longest, const Visit& visit) {
  uint32_t next = 0;
  int index = 0;
  for (int length = 1; length <= longest; ++length, next <<= 1) {
    for (int i = 0; i < code.counts[length]; ++i) visit(next++, length, code.symbols[index++]);
  }
}

using Steps = std::array<AcStep, 1 << kAcBits>;

// Fills all entries that begin with this code.
void FillSymbol(uint32_t code, int length, int symbol, Steps& steps) {
  const int run = symbol >> 4;
  const int size = symbol & 15;
  AcStep* to = steps.data() + (code << (kAcBits - length));
  const int count = 1 << (kAcBits - length);
  if (symbol == 0x00) {
    std::fill_n(to, count, MakeStep(length, kDiscard, kEndOfBlock, 0, 0));
  } else if (symbol == 0xf0) {  // sixteen zeros
    std::fill_n(to, count, MakeStep(length, 16, 16, 0, 0));
  } else if (size == 0 || length + size > kAcBits) {
    std::fill_n(to, count, MakeStep(kTooLongToJoin, kDiscard, kLongSymbol, length, symbol));
  } else {
    const int same = count >> size;
    for (int bits = 0; bits < 1 << size; ++bits, to += same) {
      const int value = bits >> (size - 1) != 0 ? bits : bits - (1 << size) + 1;
      const auto stored = static_cast<uint16_t>(value);
      std::fill_n(to, same, MakeStep(length + size, run + 1, run + 1, stored, stored));
    }
  }
}

// Returns a table with one symbol per entry.
Steps SingleSymbols(const HuffmanCode& code) {
  Steps steps;
  steps.fill(MakeStep(kTooLongToJoin, kDiscard, kLongSymbol, 0, 0));
  ForEachCode(code, kAcBits, [&](uint32_t bits, int length, int symbol) {
    FillSymbol(bits, length, symbol, steps);
  });
  return steps;
}

int Advance(AcStep step) { return static_cast<int>(step >> 24 & 0xff); }

// Adds the symbol that follows `first` to it, if both fit completely into the entry's bits. `bits`
// is the number of the entry.
AcStep JoinSymbols(AcStep first, size_t bits, const Steps& steps) {
  if (Advance(first) >= kEndOfBlock) return first;
  const AcStep second = steps[bits << (first & kLength) & (steps.size() - 1)];
  if ((first & kLength) + (second & kLength) > kAcBits) return first;
  if (Advance(second) >= kEndOfBlock)
    return first + (second & kLength) + (uint64_t{kEndOfBlock} << 24);
  constexpr uint64_t kFirstIndex = uint64_t{0xff} << 8;
  return (first & ~kSecondValue) + (second & ~(kFirstIndex | kFirstValue));
}

// Returns an entry of AcTable::skips: two steps without their values.
uint16_t JoinSkips(size_t bits, const Steps& steps) {
  const AcStep first = steps[bits];
  int length = static_cast<int>(first & kLength);
  int advance = Advance(first);
  if (advance < kEndOfBlock) {
    const AcStep second = steps[bits << length & (steps.size() - 1)];
    const int both = length + static_cast<int>(second & kLength);
    if (both <= kAcBits && advance + Advance(second) % kEndOfBlock < kEndOfBlock) {
      length = both;
      advance += Advance(second);
    }
  }
  return static_cast<uint16_t>(length | advance << 8);
}

}  // namespace

bool MakeDcTable(const HuffmanCode& code, DcTable& table) {
  if (table.canonical.code == code && table.canonical.limit[16] != 0) return true;
  table.canonical.limit[16] = 0;
  CanonicalCode canonical;
  if (!MakeCanonical(code, canonical)) return false;
  bool baseline = true;
  table.sizes.fill(0);
  ForEachCode(code, 16, [&](uint32_t bits, int length, int symbol) {
    baseline &= symbol <= 11;
    if (length > kDcBits || !baseline) return;
    const int count = 1 << (kDcBits - length);
    std::fill_n(table.sizes.data() + bits * count, count,
                static_cast<uint8_t>(length * 16 + symbol));
  });
  if (baseline) table.canonical = canonical;
  return baseline;
}

bool MakeAcTable(const HuffmanCode& code, AcTable& table) {
  if (table.canonical.code == code && table.canonical.limit[16] != 0) return true;
  table.canonical.limit[16] = 0;
  CanonicalCode canonical;
  if (!MakeCanonical(code, canonical)) return false;
  const Steps single = SingleSymbols(code);
  for (size_t i = 0; i < single.size(); ++i) table.steps[i] = JoinSymbols(single[i], i, single);
  for (size_t i = 0; i < single.size(); ++i) table.skips[i] = JoinSkips(i, table.steps);
  table.canonical = canonical;
  return true;
}

}  // namespace carole::io::jpeg
