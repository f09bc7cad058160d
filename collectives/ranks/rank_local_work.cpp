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

enum class State : char { kAtWork, kDone, kFailed };

// Says in growing intervals whom the ranks that are done wait for; the first of these speaks.
class StallReporter {
 public:
  StallReporter(const Communicator& communicator, std::string_view what, milliseconds after)
      : communicator_(communicator), what_(what), next_(start_ + after) {}

  void Look(std::span<const State> states) {
    const auto now = Clock::now();
    if (now < next_ ||
        std::ranges::find(states, State::kDone) - states.begin() != communicator_.rank())
      return;
    std::string awaited;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      if (states[rank] == State::kAtWork)
        awaited += (awaited.empty() ? "" : ", ") + communicator_.NameOf(rank);
    }
    LogInfo("comm", "{}: waiting for {}, {:.0f} s so far", what_, awaited,
            std::chrono::duration<double>(now - start_).count());
    next_ = now + (now - start_);
  }

 private:
  const Communicator& communicator_;
  const std::string_view what_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
};

// Until all ranks are done or one has failed. The slowest rank sets the pace of the votes, and ends
// its pause early.
void Vote(Communicator& communicator, std::string_view what, const std::shared_future<State>& end,
          milliseconds tell_after) {
  constexpr milliseconds kLongestPause(500);
  StallReporter reporter(communicator, what, tell_after);
  for (milliseconds pause(1);; pause = std::min(2 * pause, kLongestPause)) {
    const bool has_ended = end.wait_for(pause) == std::future_status::ready;
    const State mine = has_ended ? end.get() : State::kAtWork;
    const std::vector<State> states = AllGather(communicator, mine, {.what = what});
    if (std::ranges::count(states, State::kFailed) > 0) return;
    if (std::ranges::count(states, State::kAtWork) == 0) return;
    reporter.Look(states);
  }
}

}  // namespace

void RunRankLocal(Communicator& communicator, std::string_view what,
                  const std::function<void()>& work, milliseconds tell_after) {
  if (communicator.size() == 1) return work();
  std::promise<State> end;
  std::future<void> votes = std::async(std::launch::async, [&, end = end.get_future().share()] {
    Vote(communicator, what, end, tell_after);
  });
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  end.set_value(failure ? State::kFailed : State::kDone);
  votes.wait();
  if (failure) std::rethrow_exception(failure);
  votes.get();
}

}  // namespace carole::collectives
