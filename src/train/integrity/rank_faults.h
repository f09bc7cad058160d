// Remembers in which steps a rank was wrong. One error may be a bit that radiation flipped; a
// second one soon after it means that the hardware is bad.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace carole::train {

// All ranks record the same faults, so that they make the same decisions. Not thread-safe.
class RankFaults {
 public:
  // A rank may be wrong once in this many steps.
  static constexpr int64_t kWindow = 1000;

  // Records that `rank` was wrong at `step`. Returns the step of its previous fault if that is less
  // than kWindow steps ago, else nullopt. Two faults at the same step count as two.
  std::optional<int64_t> Record(int rank, int64_t step);

 private:
  std::map<int, int64_t> last_;  // step of the last fault, by rank
};

}  // namespace carole::train
