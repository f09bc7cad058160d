#include "src/train/integrity/rank_faults.h"

namespace carole::train {

std::optional<int64_t> RankFaults::Record(int rank, int64_t step) {
  const auto [last, is_first] = last_.try_emplace(rank, step);
  if (is_first) return std::nullopt;
  const int64_t previous = last->second;
  last->second = step;
  if (step - previous >= kWindow) return std::nullopt;
  return previous;
}

}  // namespace carole::train
