#include "collectives/contract.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/algorithms.h"
#include "collectives/roll_call.h"
#include "src/core/error.h"
#include "src/core/log.h"

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

Watch::Watch(const CommunicatorOptions& options, std::span<const std::string> names,
             WatchHooks hooks)
    : options_(options), names_(names.begin(), names.end()), hooks_(std::move(hooks)) {}

void Watch::Begin(const Header& header) {
  header_ = header;
  start_ = last_look_ = std::chrono::steady_clock::now();
  agreed_ = warned_ = false;
}

std::string Watch::NamesOf(std::span<const int> ranks) const {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + names_[ranks[i]];
    if (!hooks_.where) continue;
    const std::string where = hooks_.where(ranks[i]);
    if (!where.empty()) text += " " + where;
  }
  if (ranks.size() > kShown) text += fmt::format(" and {} more", ranks.size() - kShown);
  return text;
}

std::vector<int> Watch::Blamed(std::span<const int> missing) const {
  std::vector<int> blamed;
  for (int rank : missing) {
    if (hooks_.roll_call != nullptr) rank = hooks_.roll_call->Blame(header_.sequence, rank);
    if (std::ranges::count(blamed, rank) == 0) blamed.push_back(rank);
  }
  return blamed;
}

void Watch::Check(std::span<const int> missing) {
  if (hooks_.waiting_for) hooks_.waiting_for(missing.front());
  for (int rank : missing) {
    const std::string why = hooks_.why_gone ? hooks_.why_gone(rank) : "";
    if (why.empty()) continue;
    throw CommError(
        fmt::format("[comm] {}: {} is gone: {}", Doing(), NamesOf(std::span(&rank, 1)), why));
  }
  constexpr auto kSuspended = std::chrono::seconds(2);  // looks come every 50 ms or sooner
  const auto now = std::chrono::steady_clock::now();
  const auto since_look = now - std::exchange(last_look_, now);
  if (since_look > kSuspended) start_ += since_look - kSuspended;
  const std::chrono::duration<double> waited = now - start_;
  if (hooks_.roll_call != nullptr && waited.count() >= options_.warn_seconds / 2)
    hooks_.roll_call->Call(header_.sequence, missing.front());
  if (waited.count() >= options_.deadline_seconds) {
    throw CommError(fmt::format(
        "[comm] {}: deadline: {} after {:.1f} s: {}; frozen, busy, or its network is cut", Doing(),
        agreed_ ? "all came, but one stopped inside" : "not come", waited.count(),
        NamesOf(Blamed(missing))));
  }
  if (waited.count() < options_.warn_seconds || warned_) return;
  warned_ = true;
  const std::vector<int> blamed = Blamed(missing);
  int speaker = 0;  // of all that wait, one is enough
  while (std::ranges::count(blamed, speaker) > 0) ++speaker;
  if (speaker != hooks_.rank) return;
  LogWarning("comm", "{}: stalled for {:.1f} s: waiting for {}; the job ends after {:.0f} s",
             Doing(), waited.count(), NamesOf(blamed), options_.deadline_seconds);
}

void Watch::EndCheck() {
  if (hooks_.waiting_for) hooks_.waiting_for(-1);
  Progress();
}

// While ranks come one by one, the first of them waits for the last.
void Watch::Progress() {
  if (agreed_) start_ = last_look_ = std::chrono::steady_clock::now();
}

}  // namespace carole::collectives
