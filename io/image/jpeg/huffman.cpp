#include "io/image/jpeg/huffman.h"

#include <algorithm>

namespace carole::io::jpeg {
namespace {

constexpr uint64_t kLength = 0xff;
constexpr uint64_t kFirstValue = uint64_t{0xffff} << 32;
constexpr uint64_t kSecondValue = uint64_t{0xffff} << 48;
constexpr int kTooLong = 63;  // the length of a kLongSymbol: never fits beside another one

uint64_t MakeStep(int length, int place, int gone_on, uint16_t first, uint16_t second) {
  return static_cast<uint64_t>(length) | static_cast<uint64_t>(place) << 8 |
         static_cast<uint64_t>(place) << 16 | static_cast<uint64_t>(gone_on) << 24 |
         static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(second) << 48;
}

bool MakeCanonical(const HuffmanCode& code, CanonicalCode& canonical) {
  canonical.code = code;
  uint32_t next = 0;  // code
  int place = 0;      // of its symbol
  for (int length = 1; length <= 16; ++length) {
    canonical.offset[length] = place - static_cast<int32_t>(next);
    next += code.counts[length];
    place += code.counts[length];
    if (code.counts[length] > 0 && next >= 1u << length) return false;  // all ones is no code
    canonical.limit[length] = next << (16 - length);
    next <<= 1;
  }
  return place <= static_cast<int>(code.symbols.size());
}

// visit(code, length, symbol) for all codes of up to `longest` bits.
template <typename Visit>
void ForEachCode(const HuffmanCode& code, int longest, const Visit& visit) {
  uint32_t next = 0;
  int place = 0;
  for (int length = 1; length <= longest; ++length, next <<= 1) {
    for (int i = 0; i < code.counts[length]; ++i) visit(next++, length, code.symbols[place++]);
  }
}

using Steps = std::array<AcStep, 1 << kAcBits>;

void FillSymbol(uint32_t code, int length, int symbol, Steps& steps) {
  const int run = symbol >> 4;
  const int size = symbol & 15;
  AcStep* to = steps.data() + (code << (kAcBits - length));
  const int count = 1 << (kAcBits - length);
  if (symbol == 0x00) {
    std::fill_n(to, count, MakeStep(length, kNowhere, kEndOfBlock, 0, 0));
  } else if (symbol == 0xf0) {  // sixteen zeros
    std::fill_n(to, count, MakeStep(length, 16, 16, 0, 0));
  } else if (size == 0 || length + size > kAcBits) {
    std::fill_n(to, count, MakeStep(kTooLong, kNowhere, kLongSymbol, length, symbol));
  } else {
    const int same = count >> size;
    for (int bits = 0; bits < 1 << size; ++bits, to += same) {
      const int value = bits >> (size - 1) != 0 ? bits : bits - (1 << size) + 1;
      const auto stored = static_cast<uint16_t>(value);
      std::fill_n(to, same, MakeStep(length + size, run + 1, run + 1, stored, stored));
    }
  }
}

Steps SingleSymbols(const HuffmanCode& code) {
  Steps steps;
  steps.fill(MakeStep(kTooLong, kNowhere, kLongSymbol, 0, 0));
  ForEachCode(code, kAcBits, [&](uint32_t bits, int length, int symbol) {
    FillSymbol(bits, length, symbol, steps);
  });
  return steps;
}

int GoneOn(AcStep step) { return static_cast<int>(step >> 24 & 0xff); }

// The symbol and what follows it, when both are whole.
AcStep Join(AcStep first, size_t index, const Steps& steps) {
  if (GoneOn(first) >= kEndOfBlock) return first;
  const AcStep second = steps[index << (first & kLength) & (steps.size() - 1)];
  if ((first & kLength) + (second & kLength) > kAcBits) return first;
  if (GoneOn(second) >= kEndOfBlock)
    return first + (second & kLength) + (uint64_t{kEndOfBlock} << 24);
  constexpr uint64_t kFirstPlace = uint64_t{0xff} << 8;
  return (first & ~kSecondValue) + (second & ~(kFirstPlace | kFirstValue));
}

// Two steps without their values.
uint16_t JoinSkips(size_t index, const Steps& steps) {
  const AcStep first = steps[index];
  int length = static_cast<int>(first & kLength);
  int gone_on = GoneOn(first);
  if (gone_on < kEndOfBlock) {
    const AcStep second = steps[index << length & (steps.size() - 1)];
    const int both = length + static_cast<int>(second & kLength);
    if (both <= kAcBits && gone_on + GoneOn(second) % kEndOfBlock < kEndOfBlock) {
      length = both;
      gone_on += GoneOn(second);
    }
  }
  return static_cast<uint16_t>(length | gone_on << 8);
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
  for (size_t i = 0; i < single.size(); ++i) table.steps[i] = Join(single[i], i, single);
  for (size_t i = 0; i < single.size(); ++i) table.skips[i] = JoinSkips(i, table.steps);
  table.canonical = canonical;
  return true;
}

}  // namespace carole::io::jpeg
