// Tables for the Huffman codes of baseline JPEG (ITU-T T.81, annex C and F.2.2). One lookup decodes
// up to two coefficients. The essay in huffman.cpp explains the idea with an example.
#pragma once

#include <array>
#include <cstdint>

namespace carole::io::jpeg {

// A Huffman code as in a DHT segment: counts[n] codes have n bits (1..16), and `symbols` are in the
// order of the codes.
struct HuffmanCode {
  std::array<uint8_t, 17> counts{};
  std::array<uint8_t, 256> symbols{};

  bool operator==(const HuffmanCode&) const = default;
};

// Finds the symbol of a code of any length, for codes that are too long for the tables. Canonical
// codes of equal length are consecutive numbers.
struct CanonicalCode {
  HuffmanCode code;
  std::array<uint32_t, 17> limit{};  // the next 16 bits are below limit[n]: at most n bits of code
  std::array<int32_t, 17> offset{};  // a code of n bits has the symbol symbols[code + offset[n]]
};

inline constexpr int kDcBits = 9;   // the DC table is indexed by the next 9 bits
inline constexpr int kAcBits = 11;  // the AC table is indexed by the next 11 bits

// Codes of DC differences. The symbol is the size of the difference in bits.
struct DcTable {
  CanonicalCode canonical;
  // Length of the code * 16 + size; 0 if the code is longer than kDcBits.
  std::array<uint8_t, 1 << kDcBits> sizes{};
};

// The result of one lookup: up to two coefficients. Indices are in zigzag order and count from the
// last coefficient before this step.
//   bits  0..7   length: number of bits that the step consumes
//   bits  8..15  index of the first coefficient
//   bits 16..23  index of the second coefficient; the first one's if there is no second
//   bits 24..31  advance: index after the step; + kEndOfBlock if the block ends here; kLongSymbol
//   bits 32..47  value of the first coefficient
//   bits 48..63  value of the second coefficient; the first one's if there is no second
// Without any coefficient the indices are kDiscard, which leads to the dummy slot of a block. If a
// symbol does not fit together with its value, the step is a kLongSymbol. It has the length of the
// symbol's code (0: unknown) and the symbol instead of the values.
using AcStep = uint64_t;
inline constexpr int kDiscard = 64;
inline constexpr int kEndOfBlock = 64;
inline constexpr int kLongSymbol = 128;

// Codes of AC coefficients.
struct AcTable {
  CanonicalCode canonical;
  std::array<AcStep, 1 << kAcBits> steps{};
  // For blocks that are skipped: as many symbols as fit (up to four), without their values. An
  // entry is length + 256 * advance, as above.
  std::array<uint16_t, 1 << kAcBits> skips{};
};

// Make the tables of a code. They do nothing if the table already holds this code. They return
// false if the code is not a valid prefix code (too many codes of some length) or has symbols that
// a baseline image cannot have.
bool MakeDcTable(const HuffmanCode& code, DcTable& table);
bool MakeAcTable(const HuffmanCode& code, AcTable& table);

}  // namespace carole::io::jpeg
