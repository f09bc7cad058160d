#include "collectives/transport/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/transport/stall_inspector.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::collectives {

Watchdog::Watchdog(const CommunicatorOptions& options, std::span<const std::string> names,
                   WatchdogHooks hooks)
    : options_(options), names_(names.begin(), names.end()), hooks_(std::move(hooks)) {}

void Watchdog::Begin(const OperationHeader& header) {
  header_ = header;
  start_ = last_check_ = std::chrono::steady_clock::now();
  all_arrived_ = warned_ = false;
}

std::string Watchdog::DescribeRanks(std::span<const int> ranks) const {
  constexpr size_t kMaxNames = 8;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMaxNames); ++i) {
    text += (i == 0 ? "" : ", ") + names_[ranks[i]];
    if (!hooks_.describe_activity) continue;
    const std::string activity = hooks_.describe_activity(ranks[i]);
    if (!activity.empty()) text += " " + activity;
  }
  if (ranks.size() > kMaxNames) text += fmt::format(" and {} more", ranks.size() - kMaxNames);
  return text;
}

std::vector<int> Watchdog::FindStalledRanks(std::span<const int> missing) const {
  std::vector<int> stalled;
  for (int rank : missing) {
    if (hooks_.stall_inspector != nullptr)
      rank = hooks_.stall_inspector->FindStalledRank(header_.sequence, rank);
    if (std::ranges::count(stalled, rank) == 0) stalled.push_back(rank);
  }
  return stalled;
}

void Watchdog::Check(std::span<const int> missing) {
  if (hooks_.on_waiting_for) hooks_.on_waiting_for(missing.front());
  for (int rank : missing) {
    const std::string reason = hooks_.departure_reason ? hooks_.departure_reason(rank) : "";
    if (reason.empty()) continue;
    throw CommError(fmt::format("[comm] {}: {} is gone: {}", DescribeOperation(),
                                DescribeRanks(std::span(&rank, 1)), reason));
  }
  constexpr auto kSuspended = std::chrono::seconds(2);  // checks come every 50 ms or sooner
  const auto now = std::chrono::steady_clock::now();
  const auto since_check = now - std::exchange(last_check_, now);
  if (since_check > kSuspended) start_ += since_check - kSuspended;
  const std::chrono::duration<double> waited = now - start_;
  if (hooks_.stall_inspector != nullptr && waited.count() >= options_.warn_seconds / 2)
    hooks_.stall_inspector->ReportWait(header_.sequence, missing.front());
  if (waited.count() >= options_.deadline_seconds) {
    throw CommError(fmt::format(
        "[comm] {}: deadline: {} after {:.1f} s: {}; a rank is frozen or busy, or its network is "
        "cut: look there, or raise {}",
        DescribeOperation(),
        all_arrived_ ? "all ranks arrived, but one sent no more data" : "ranks have not arrived",
        waited.count(), DescribeRanks(FindStalledRanks(missing)), Option("collective_timeout")));
  }
  if (waited.count() < options_.warn_seconds || warned_) return;
  warned_ = true;
  const std::vector<int> stalled = FindStalledRanks(missing);
  int reporter = 0;  // one report is enough: the lowest rank that is not stalled itself writes it
  while (std::ranges::count(stalled, reporter) > 0) ++reporter;
  if (reporter != hooks_.rank) return;
  LogWarning("comm", "{}: stalled for {:.1f} s: waiting for {}; the job ends after {:.0f} s",
             DescribeOperation(), waited.count(), DescribeRanks(stalled),
             options_.deadline_seconds);
}

void Watchdog::EndWait() {
  if (hooks_.on_waiting_for) hooks_.on_waiting_for(-1);
  NoteProgress();
}

// Before all ranks have arrived, progress does not count: ranks may arrive one by one, and the
// first of them waits for the last.
void Watchdog::NoteProgress() {
  if (all_arrived_) start_ = last_check_ = std::chrono::steady_clock::now();
}

}  // namespace carole::collectives
