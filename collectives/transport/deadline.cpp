#include "collectives/transport/deadline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/transport/stall_inspector.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::collectives {

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
    if (hooks_.stall_inspector != nullptr)
      rank = hooks_.stall_inspector->Blame(header_.sequence, rank);
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
  if (hooks_.stall_inspector != nullptr && waited.count() >= options_.warn_seconds / 2)
    hooks_.stall_inspector->Call(header_.sequence, missing.front());
  if (waited.count() >= options_.deadline_seconds) {
    throw CommError(
        fmt::format("[comm] {}: deadline: {} after {:.1f} s: {}; frozen, busy, or its network is "
                    "cut: look there, or raise --collective_timeout",
                    Doing(), agreed_ ? "all came, but one stopped inside" : "not come",
                    waited.count(), NamesOf(Blamed(missing))));
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
