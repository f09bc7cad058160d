// Elapsed time of the steady clock.
#pragma once

#include <chrono>
#include <utility>

namespace carole {

// Seconds on a clock that only goes forward.
inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds from then to now.
inline double SecondsSince(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

// Laps, one after the other without gaps.
class Stopwatch {
 public:
  // Since the last lap, or since this was made.
  std::chrono::nanoseconds LapTime() {
    const auto now = std::chrono::steady_clock::now();
    return now - std::exchange(start_, now);
  }
  double Lap() { return std::chrono::duration<double, std::milli>(LapTime()).count(); }  // ms

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace carole
