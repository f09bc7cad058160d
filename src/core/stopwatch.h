// Elapsed time, by the monotonic clock.
#pragma once

#include <chrono>
#include <utility>

namespace carole {

// Returns the time of the monotonic clock in seconds. Only differences have a meaning.
inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the seconds that have passed since `then`.
inline double SecondsSince(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

// Measures consecutive laps: each begins when the previous one ends.
class Stopwatch {
 public:
  // Ends the current lap and returns its length. The first lap begins at construction.
  std::chrono::nanoseconds LapTime() {
    const auto now = std::chrono::steady_clock::now();
    return now - std::exchange(start_, now);
  }
  // The same, in milliseconds.
  double Lap() { return std::chrono::duration<double, std::milli>(LapTime()).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace carole
