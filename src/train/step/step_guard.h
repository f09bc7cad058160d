// Guards a training step against infinities and NaN: what a step that is not applied must not leave
// behind, and who is to blame.
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
  // `frozen` lists variables (indexes into places) that lie among the statistics but never change.
  // The store outlives this.
  StepGuard(const VariableStore& store, const std::vector<int>& frozen);

  // Before the step: keeps the moving statistics, which the forward pass changes. Cheap.
  void Save() const;
  // Puts them back.
  void Restore() const;
  // On a device: does so unless the flag, in its memory, is set when it comes to this.
  void RestoreUnless(const bool* applied) const;

  // Which ranks have a loss, weights or gradients that are not finite, in words: "rank 1: loss nan,
  // gradient of net/conv/weights". The gradients must be this rank's own, not sums; where all are
  // finite, their sum over the ranks was not. Collective; the same text on every rank.
  std::string Blame(double local_loss, collectives::Communicator& communicator) const;

 private:
  // The first that is not finite, as an index into places; -1: none.
  int FirstBad(const std::vector<int>& variables, std::byte* arena) const;
  void Copy(std::byte* to, const std::byte* from) const;

  const VariableStore& store_;
  const std::vector<collectives::Range> statistics_;
  DeviceMemory saved_;  // of the form of all statistics
};

}  // namespace carole::train
