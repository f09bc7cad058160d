// Guards a training step against infinities and NaN. If the step is skipped, it restores the
// running statistics and describes which rank and variable caused it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/reducer/bucketing.h"
#include "src/graph/variable_store.h"

namespace carole::train {

class StepGuard {
 public:
  // `frozen` lists variables (indexes into the store) that are in the statistics arena but never
  // change. The store must outlive this.
  StepGuard(const VariableStore& store, const std::vector<int>& frozen);

  // The copy of the running statistics, with the layout of their arena.
  const std::byte* saved_statistics() const { return saved_.get(); }
  // Saves the running statistics, which the forward pass changes. Call it before the step. Cheap.
  void SaveStatistics() const;
  // Restores the running statistics.
  void RestoreStatistics() const;
  // Does the same, unless *applied is true when the device gets here. The flag is in device memory.
  void RestoreStatisticsUnless(const bool* applied) const;

  // Describes which ranks have a loss, weights or gradients that are not finite: "rank 1: loss nan,
  // gradient of net/conv/weights". The gradients in the store must be this rank's own, not reduced
  // ones. If all of them are finite, their sum over the ranks was not, and the text says so.
  // Collective; returns the same text on every rank.
  std::string DescribeNonFinite(double local_loss, collectives::Communicator& communicator) const;

 private:
  // Returns the first of these variables with a value in `arena` that is not finite; -1: none.
  int FirstNonFinite(const std::vector<int>& variables, std::byte* arena) const;
  template <typename Use>
  void ForEachRange(const Use& use) const;
  void Copy(std::byte* to, const std::byte* from) const;

  const VariableStore& store_;
  const std::vector<collectives::Range> statistics_;
  DeviceMemory saved_;  // same layout as the statistics arena
};

}  // namespace carole::train
