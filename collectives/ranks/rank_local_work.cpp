#include "collectives/ranks/rank_local_work.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "src/core/log.h"

namespace carole::collectives {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

enum class WorkState : char { kWorking, kDone, kFailed };

// Logs in growing intervals which ranks are still working. Only the first of the ranks that are
// done logs.
class StallReporter {
 public:
  StallReporter(const Communicator& communicator, std::string_view what, milliseconds report_after)
      : communicator_(communicator), what_(what), next_(start_ + report_after) {}

  void ReportIfDue(std::span<const WorkState> states) {
    const auto now = Clock::now();
    if (now < next_ ||
        std::ranges::find(states, WorkState::kDone) - states.begin() != communicator_.rank())
      return;
    std::string working;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      if (states[rank] == WorkState::kWorking)
        working += (working.empty() ? "" : ", ") + communicator_.NameOf(rank);
    }
    LogInfo("comm", "{}: waiting for {}, {:.0f} s so far", what_, working,
            std::chrono::duration<double>(now - start_).count());
    next_ = now + (now - start_);
  }

 private:
  const Communicator& communicator_;
  const std::string_view what_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
};

// Exchanges the ranks' states until all ranks are done or one has failed. The slowest rank sets the
// pace; it ends its pause early when its work ends.
void ExchangeStates(Communicator& communicator, std::string_view what,
                    const std::shared_future<WorkState>& end, milliseconds report_after) {
  constexpr milliseconds kLongestPause(500);
  StallReporter reporter(communicator, what, report_after);
  for (milliseconds pause(1);; pause = std::min(2 * pause, kLongestPause)) {
    const bool has_ended = end.wait_for(pause) == std::future_status::ready;
    const WorkState mine = has_ended ? end.get() : WorkState::kWorking;
    const std::vector<WorkState> states = AllGather(communicator, mine, {.what = what});
    if (std::ranges::count(states, WorkState::kFailed) > 0) return;
    if (std::ranges::count(states, WorkState::kWorking) == 0) return;
    reporter.ReportIfDue(states);
  }
}

}  // namespace

void RunRankLocal(Communicator& communicator, std::string_view what,
                  const std::function<void()>& work, milliseconds report_after) {
  if (communicator.size() == 1) return work();
  std::promise<WorkState> end;
  std::future<void> exchange = std::async(std::launch::async, [&, end = end.get_future().share()] {
    ExchangeStates(communicator, what, end, report_after);
  });
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  end.set_value(failure ? WorkState::kFailed : WorkState::kDone);
  exchange.wait();
  if (failure) std::rethrow_exception(failure);
  exchange.get();
}

}  // namespace carole::collectives
