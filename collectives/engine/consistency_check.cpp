#include "collectives/engine/consistency_check.h"

#include <fmt/format.h>

#include <cstring>

#include "collectives/algorithms/algorithms.h"
#include "src/core/error.h"

namespace carole::collectives {

namespace {

std::string PlaceText(uint64_t place) {
  if (place == Header::kOutside) return "outside of arenas";
  return fmt::format("arena {} byte {}", place >> Header::kOffsetBits,
                     place & ((uint64_t{1} << Header::kOffsetBits) - 1));
}

// The fields beyond Describe() in which the two differ.
std::string OtherFields(const Header& mine, const Header& other) {
  std::string text = fmt::format(", operation number {}", mine.sequence);
  if (mine.plan != other.plan) text += fmt::format(", plan {:#x}", mine.plan);
  if (mine.root != other.root) text += fmt::format(", root {}", mine.root);
  if (mine.algorithm != other.algorithm)
    text += fmt::format(", algorithm {}", RowName(mine.algorithm));
  if (mine.wire != other.wire) text += fmt::format(", {} on the wire", Name(mine.wire));
  if (mine.place != other.place) text += ", " + PlaceText(mine.place);
  return text;
}

}  // namespace

void CheckHeadersMatch(const HeaderRange& v, std::span<const std::string> names) {
  if (std::memcmp(&v.low, &v.high, sizeof(Header)) == 0) return;
  throw CommError(
      fmt::format("[comm] collective: ranks are out of step: {} calls {}{}; {} calls {}{}; do all "
                  "ranks run the same program, flags and data?",
                  names[v.low_rank], Describe(v.low), OtherFields(v.low, v.high),
                  names[v.high_rank], Describe(v.high), OtherFields(v.high, v.low)));
}

}  // namespace carole::collectives
