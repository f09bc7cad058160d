#include "collectives/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/algorithms.h"
#include "src/core/error.h"

namespace carole::collectives {

namespace {

bool Less(const Header& a, const Header& b) { return std::memcmp(&a, &b, sizeof(Header)) < 0; }

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

std::string_view Name(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kAllocate:
      return "allocate_arena";
    case Operation::kLeave:
      return "leave";
  }
  return "?";
}

std::string_view Name(RankPhase phase) {
  switch (phase) {
    case RankPhase::kStarting:
      return "start";
    case RankPhase::kInput:
      return "input";
    case RankPhase::kForward:
      return "forward";
    case RankPhase::kBackward:
      return "backward";
    case RankPhase::kSums:
      return "sums";
    case RankPhase::kOptimizer:
      return "optimizer";
    case RankPhase::kEvaluation:
      return "evaluation";
    case RankPhase::kSaving:
      return "saving";
  }
  return "?";
}

Header MakeHeader(Operation operation, DType dtype, uint64_t count, const Tag& tag) {
  Header header{.count = count,
                .plan = tag.plan,
                .step = tag.step,
                .bucket = tag.bucket,
                .operation = operation,
                .dtype = dtype};
  std::memcpy(header.what, tag.what.data(), std::min(tag.what.size(), sizeof(header.what) - 1));
  return header;
}

std::string Describe(const Header& h) {
  std::string text(Name(h.operation));
  if (h.operation != Operation::kBarrier && h.operation != Operation::kLeave) {
    text += fmt::format(" of {} {}", h.count, h.dtype == DType::kU8 ? "bytes" : Name(h.dtype));
  }
  if (h.what[0] != '\0') text += fmt::format(", tag {}", h.what);
  return text + fmt::format(", step {}, bucket {}", h.step, h.bucket);
}

Verdict MakeVerdict(const Header& header, int rank) {
  return {.low = header, .high = header, .low_rank = rank, .high_rank = rank};
}

void Merge(const Verdict& from, Verdict* into) {
  const auto smaller = [](const Header& a, int rank_a, const Header& b, int rank_b) {
    return Less(a, b) || (!Less(b, a) && rank_a < rank_b);
  };
  if (smaller(from.low, from.low_rank, into->low, into->low_rank)) {
    into->low = from.low;
    into->low_rank = from.low_rank;
  }
  // Of equal headers the lowest rank speaks here as well, so that the order of merging shows
  // nowhere.
  const bool larger = Less(into->high, from.high);
  if (larger || (!Less(from.high, into->high) && from.high_rank < into->high_rank)) {
    into->high = from.high;
    into->high_rank = from.high_rank;
  }
}

void RequireAgreement(const Verdict& v, std::span<const std::string> names) {
  if (std::memcmp(&v.low, &v.high, sizeof(Header)) == 0) return;
  throw CommError(
      fmt::format("[comm] collective: ranks are out of step: {} calls {}{}; {} calls {}{}; do all "
                  "ranks run the same program, flags and data?",
                  names[v.low_rank], Describe(v.low), OtherFields(v.low, v.high),
                  names[v.high_rank], Describe(v.high), OtherFields(v.high, v.low)));
}

}  // namespace carole::collectives
