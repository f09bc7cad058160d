// Which of a library's plans is the fastest, by trying them. Knows neither CUDA nor the library, so
// that a test can give it plans and a clock of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace carole::cuda {

inline constexpr int kMostPlans = 16;  // that run, in the library's order, of some 40
inline constexpr int kEnoughPlans = 4;
// How long the search goes on once it has enough plans, and before that, after the first that runs:
// that one loads the library. Plans that are compiled when they are built take long.
inline constexpr std::chrono::milliseconds kTimeWithEnough{500}, kTimeForEnough{2000};

// What came of trying a plan.
struct PlanTrial {
  std::optional<float> milliseconds;  // nullopt: it cannot be built, or does not run
  bool lacks_memory = false;          // to be tried in
};

struct PlanSearch {
  int64_t fastest = -1;    // -1: none ran
  int64_t untried = -1;    // the first that lacked memory; -1: none did
  bool is_enough = false;  // the next search would hardly find a faster one in the same time
};

// Of `count` plans. `now` is a clock's.
template <typename TryPlan, typename Now>
PlanSearch FindFastest(int64_t count, const TryPlan& try_plan, const Now& now) {
  PlanSearch found;
  float shortest = std::numeric_limits<float>::max();
  int timed = 0;
  decltype(now()) first{};
  int64_t plan = 0;
  for (; plan < count && timed < kMostPlans; ++plan) {
    if (timed > 0 && now() - first > (timed < kEnoughPlans ? kTimeForEnough : kTimeWithEnough))
      break;
    const PlanTrial trial = try_plan(plan);
    if (trial.lacks_memory && found.untried < 0) found.untried = plan;
    if (!trial.milliseconds) continue;
    if (++timed == 1) first = now();
    if (*trial.milliseconds >= shortest) continue;
    shortest = *trial.milliseconds;
    found.fastest = plan;
  }
  found.is_enough = found.untried < 0 && timed > 0;
  return found;
}

}  // namespace carole::cuda
