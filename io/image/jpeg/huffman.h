// Huffman codes of baseline JPEG (ITU-T T.81, annex C and F.2.2) as tables that resolve several
// symbols at a time.
//
// An AC symbol is a run of zeros and a size; `size` bits of value follow its code. A table is
// indexed by the next kAcBits bits, of which most hold one or two symbols with their values whole:
// one look-up and one shift then stand for up to two coefficients.
#pragma once

#include <array>
#include <cstdint>

namespace carole::io::jpeg {

// As a DHT segment has it: counts[n] codes of n bits (1..16), their symbols in the order of codes.
struct HuffmanCode {
  std::array<uint8_t, 17> counts{};
  std::array<uint8_t, 256> symbols{};

  bool operator==(const HuffmanCode&) const = default;
};

// A code of any length, searched by length: for those that are too long for the tables.
struct CanonicalCode {
  HuffmanCode code;
  std::array<uint32_t, 17> limit{};  // codes of n bits, followed by anything, are below limit[n]
  std::array<int32_t, 17> offset{};  // code of n bits + offset[n]: place of its symbol
};

inline constexpr int kDcBits = 9;
inline constexpr int kAcBits = 11;

struct DcTable {
  CanonicalCode canonical;
  // Length of the code * 16 + size; 0 for longer codes.
  std::array<uint8_t, 1 << kDcBits> sizes{};
};

// One look-up. A coefficient's place is counted from the last one's, in zigzag order.
//   bits  0..7   length: bits that are used up
//   bits  8..15  place of the first coefficient
//   bits 16..23  place of the second one; the first one's when there is none
//   bits 24..31  places gone on; + kEndOfBlock when the block ends here; kLongSymbol
//   bits 32..47  value of the first coefficient
//   bits 48..63  value of the second one; the first one's when there is none
// Where there is no coefficient, places are kNowhere. A kLongSymbol, which does not fit with its
// value, has the length of its code (0: unknown) and its symbol in place of the values.
using AcStep = uint64_t;
inline constexpr int kNowhere = 64;
inline constexpr int kEndOfBlock = 64;
inline constexpr int kLongSymbol = 128;

struct AcTable {
  CanonicalCode canonical;
  std::array<AcStep, 1 << kAcBits> steps{};
  // For blocks nobody wants: as many symbols as fit. Length + 256 * places gone on, as above.
  std::array<uint16_t, 1 << kAcBits> skips{};
};

// Make the tables of a code, unless they hold it already. False when it is none (codes run out) or
// has symbols that a baseline image cannot have.
bool MakeDcTable(const HuffmanCode& code, DcTable& table);
bool MakeAcTable(const HuffmanCode& code, AcTable& table);

}  // namespace carole::io::jpeg
