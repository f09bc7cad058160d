// Finds the fastest of a library's plans by timing them, within a time limit. Includes neither CUDA
// nor the library, so that a test can pass its own plans and its own clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace carole::cuda {

// The search ends after this many plans have been timed, in the library's order. Failed plans do
// not count. cuDNN offers about 40 plans. The CMake option CAROLE_MAX_PLANS changes the number, to
// measure what more plans would gain (tests/gpu/README.md).
#ifndef CAROLE_MAX_PLANS
#define CAROLE_MAX_PLANS 16
#endif
inline constexpr int kMaxPlans = CAROLE_MAX_PLANS;
// The search tries to time at least this many plans.
inline constexpr int kMinPlans = 4;
// Time limits of the search: once it has timed kMinPlans plans, and before that. The clock starts
// after the first plan that runs, because that one loads the library. Plans that are compiled when
// they are built take long.
inline constexpr std::chrono::milliseconds kTimeAfterMinPlans{500}, kTimeForMinPlans{2000};

// The result of one attempt to build and time a plan.
struct PlanTrial {
  std::optional<float> milliseconds;  // nullopt: the plan cannot be built, or does not run
  bool lacks_memory = false;          // there was too little memory to try the plan
};

// The result of a search. Plans are numbered in the library's order.
struct PlanSearch {
  int64_t fastest = -1;  // -1: no plan ran
  int64_t untried = -1;  // the first plan that lacked memory; -1: there is none
  // Another search would hardly find a faster plan in the same time: the result may be cached.
  bool is_conclusive = false;
};

// Tries plans 0, 1, … below `count` and returns the fastest.
//   try_plan(plan)    returns a PlanTrial
//   now()             returns the current time of a std::chrono clock
template <typename TryPlan, typename Now>
PlanSearch FindFastest(int64_t count, const TryPlan& try_plan, const Now& now) {
  PlanSearch found;
  float shortest = std::numeric_limits<float>::max();
  int timed = 0;
  decltype(now()) first{};
  int64_t plan = 0;
  for (; plan < count && timed < kMaxPlans; ++plan) {
    if (timed > 0 && now() - first > (timed < kMinPlans ? kTimeForMinPlans : kTimeAfterMinPlans))
      break;
    const PlanTrial trial = try_plan(plan);
    if (trial.lacks_memory && found.untried < 0) found.untried = plan;
    if (!trial.milliseconds) continue;
    if (++timed == 1) first = now();
    if (*trial.milliseconds >= shortest) continue;
    shortest = *trial.milliseconds;
    found.fastest = plan;
  }
  found.is_conclusive = found.untried < 0 && timed > 0;
  return found;
}

}  // namespace carole::cuda
