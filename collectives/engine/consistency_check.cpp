#include "collectives/engine/consistency_check.h"

#include <fmt/format.h>

#include <cstring>

#include "src/core/error.h"

namespace carole::collectives {

namespace {

std::string DescribeAddress(uint64_t address) {
  if (address == OperationHeader::kNotInArena) return "not in an arena";
  return fmt::format("arena {} byte {}", address >> OperationHeader::kOffsetBits,
                     address & ((uint64_t{1} << OperationHeader::kOffsetBits) - 1));
}

// Returns the fields of `mine` in which the two headers differ, beyond those in Describe().
std::string OtherFields(const OperationHeader& mine, const OperationHeader& other) {
  std::string text = fmt::format(", operation number {}", mine.sequence);
  if (mine.plan != other.plan) text += fmt::format(", plan {:#x}", mine.plan);
  if (mine.root != other.root) text += fmt::format(", root {}", mine.root);
  if (mine.algorithm != other.algorithm)
    text += fmt::format(", algorithm {}", Name(mine.algorithm));
  if (mine.wire != other.wire) text += fmt::format(", {} on the wire", Name(mine.wire));
  if (mine.arena_address != other.arena_address) text += ", " + DescribeAddress(mine.arena_address);
  return text;
}

}  // namespace

void CheckHeadersMatch(const HeaderRange& range, std::span<const std::string> names) {
  if (std::memcmp(&range.low, &range.high, sizeof(OperationHeader)) == 0) return;
  throw CommError(fmt::format(
      "[comm] collective: ranks are out of step: {} calls {}{}; {} calls {}{}; start "
      "all ranks with the same program, flags and data",
      names[range.low_rank], Describe(range.low), OtherFields(range.low, range.high),
      names[range.high_rank], Describe(range.high), OtherFields(range.high, range.low)));
}

}  // namespace carole::collectives
