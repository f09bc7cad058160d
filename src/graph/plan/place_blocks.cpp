#include "src/graph/plan/place_blocks.h"

#include <algorithm>
#include <numeric>

namespace carole {
namespace {

class Placement {
 public:
  Placement(Plan& plan, const std::vector<int>& pinned)
      : plan_(plan), steps_(plan.AllSteps()), pinned_(plan.blocks.size(), false) {
    for (int block : pinned) pinned_[block] = true;
  }

  // Sets the first and the last step of each block.
  void SetLifetimes() {
    std::vector<bool> is_written(plan_.blocks.size(), false);
    for (int s = 0; s < num_steps(); ++s) {
      const PlanStep& step = *steps_[s];
      if (step.workspace >= 0) LiveAt(step.workspace, s);
      for (int output : step.outputs) {
        const int block = plan_.BlockOf(output);
        if (block < 0 || is_written[block]) continue;
        is_written[block] = true;
        LiveAt(block, s);
      }
      for (int input : step.inputs) {
        if (const int block = plan_.BlockOf(input); block >= 0) plan_.blocks[block].last_step = s;
      }
    }
    for (size_t block = 0; block < plan_.blocks.size(); ++block) {
      if (!pinned_[block]) continue;
      if (!is_written[block]) plan_.blocks[block].first_step = 0;
      plan_.blocks[block].last_step = std::max(num_steps() - 1, 0);
    }
  }

  // Lets an output take over the block of an input that dies in this step, if the kernel allows it.
  void ShareInPlace() {
    merged_into_.resize(plan_.blocks.size());
    std::iota(merged_into_.begin(), merged_into_.end(), 0);
    for (int s = 0; s < num_steps(); ++s) {
      for (size_t o = 0; o < steps_[s]->outputs.size(); ++o) ShareOutput(s, static_cast<int>(o));
    }
    for (Representation& r : plan_.representations) {
      if (r.home == Representation::Home::kBlock) r.index = merged_into_[r.index];
    }
  }

 private:
  int num_steps() const { return static_cast<int>(steps_.size()); }

  void LiveAt(int block, int step) {
    plan_.blocks[block].first_step = step;
    plan_.blocks[block].last_step = step;
  }

  void ShareOutput(int s, int output) {
    const PlanStep& step = *steps_[s];
    const int output_block = plan_.BlockOf(step.outputs[output]);
    const int input = output_block < 0 ? -1 : step.kernel->InPlaceInput(output);
    const int own_block = input < 0 ? -1 : plan_.BlockOf(step.inputs[input]);
    if (own_block < 0) return;
    const int input_block = merged_into_[own_block];
    MemoryBlock &from = plan_.blocks[input_block], &to = plan_.blocks[output_block];
    if (input_block == output_block || from.last_step != s || from.bytes != to.bytes ||
        pinned_[input_block] || ReadsTwice(step, input))
      return;
    from.last_step = to.last_step;
    to.bytes = 0;
    merged_into_[output_block] = input_block;
    pinned_[input_block] = pinned_[output_block];
  }

  // Whether another input of the step has the same memory (as in d + e + d). Then a result must not
  // overwrite it, because the kernel would read the result instead of that input.
  bool ReadsTwice(const PlanStep& step, int input) const {
    const int block = plan_.BlockOf(step.inputs[input]);
    return std::count_if(step.inputs.begin(), step.inputs.end(),
                         [&](int r) { return plan_.BlockOf(r) == block; }) > 1;
  }

  Plan& plan_;
  const std::vector<const PlanStep*> steps_;
  std::vector<bool> pinned_;
  std::vector<int> merged_into_;  // for each block, the block whose memory it has
};

}  // namespace

void PlaceBlocks(Plan& plan, const std::vector<int>& pinned) {
  Placement placement(plan, pinned);
  placement.SetLifetimes();
  placement.ShareInPlace();
  plan.statistics.peak_live_bytes = PeakBytes(plan.blocks);
  plan.statistics.arena_bytes = PlanMemory(plan.blocks);
  plan.statistics.kernels = static_cast<int>(plan.AllSteps().size());
}

}  // namespace carole
