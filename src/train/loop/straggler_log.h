// Decides which stragglers are worth a line in the log.
//
// Ranks are never equally fast, and any of them may be late for a moment. A line is logged once for
// each cause (a rank, and what is slow on it), when it has lasted for 100 steps and 10 s in a row.
// After that, a summary of all causes is logged at most every 5 minutes. This class has no clock:
// callers say what time it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace carole::train {

enum class StragglerCause : uint8_t { kInput, kCompute, kLink, kUnknown };

struct Straggler {
  int rank = -1;  // -1: there is no straggler
  StragglerCause cause = StragglerCause::kUnknown;
  double delay_ms = 0;  // per step, of the other ranks
  std::string why;      // for the log
};

class StragglerLog {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds the straggler of the last `num_steps` steps, which took `seconds`. `name` is that of its
  // rank, "rank 3 (host)". Returns the line to log, or "".
  std::string Add(const Straggler& found, const std::string& name, int num_steps, double seconds,
                  Clock::time_point now);

  // Returns how much time each cause that was logged has cost the other ranks, or "" if none was.
  std::string Summary() const;

 private:
  using Cause = std::pair<int, StragglerCause>;  // of this rank
  struct Delay {
    std::string name;
    double seconds = 0;
    bool is_logged = false;
  };

  std::map<Cause, Delay> delays_;
  Cause current_ = {-1, StragglerCause::kUnknown};
  int64_t current_steps_ = 0;  // in a row
  double current_seconds_ = 0;
  double all_seconds_ = 0;  // of all steps
  Clock::time_point last_line_;
};

}  // namespace carole::train
