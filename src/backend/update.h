// Weight updates: the interface that applies the optimizers' rules (optimizers/optimizer.h).
// src/optim implements the optimizers with it; the backends implement Updater.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/backend/optimizers/optimizer.h"
#include "src/core/dtype.h"
#include "src/tensor/tensor.h"

namespace carole {

struct OptimizerOptions;

// Elements [begin, end) of an arena.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
};

// The elements of a variable.
struct VariableSegment : Segment {
  bool decays = true;  // whether it has weight decay
};

// A copy of some weights in a 16-bit type, for kernels. Update() writes it together with the
// weights.
struct WeightCopy {
  Segment range;               // of the weights
  DType dtype = DType::kBF16;  // or kF16; the same for all copies of one Updater
  std::byte* memory = nullptr;
};

// The memory that an Updater works on, and the settings that are the same in all steps. Each arena
// has `count` elements. The lists of segments are in ascending order and do not overlap.
struct UpdateJob {
  int rule = 0;                               // see VisitRule() in optimizers/optimizers.h
  const OptimizerOptions* options = nullptr;  // copied by the Updater
  DType dtype = DType::kF32;                  // or kF64
  std::byte* weights = nullptr;
  const std::byte* gradients = nullptr;
  std::byte* slots[kMaxSlots] = {};
  int64_t count = 0;
  // The variables that have weight decay or a trust ratio. Without trust ratios, adjacent variables
  // may be one segment.
  std::vector<VariableSegment> segments;
  std::vector<WeightCopy> copies;  // only GPUs support them
  // Clipping by global norm, if not 0: scale = clip_norm / max(clip_norm, norm of the gradient).
  double clip_norm = 0;
};

// A piece of an arena that one thread (CPU) or one thread block (GPU) updates.
struct UpdateBlock {
  Segment range;
  int segment = -1;           // index into UpdateJob::segments; -1: none
  bool decays = false;        // VariableSegment::decays
  std::byte* copy = nullptr;  // where the copy of the first element goes; null: no copy
  // The largest size. Weights, gradients and two slots of this many elements fit into the L1 and L2
  // caches.
  static constexpr int64_t kElements = 4096;
};
// Cuts [0, count) into blocks, in ascending order. No block crosses the border of a segment or
// copy.
std::vector<UpdateBlock> CutIntoBlocks(const UpdateJob& job);

// Sums over the weights and gradients of one step, in double.
struct UpdateSums {
  double gradient_squares = 0;  // sum over the inspected gradients, before clipping
  // Sum over the weights before the update whose decay is part of the loss.
  double weight_squares = 0;
  bool is_finite = true;  // whether everything inspected was finite; if not, Update() is a no-op
};

// Applies an update rule to all weights, or to none if a gradient or the loss is not finite. Used
// by one thread. The result does not depend on the number of threads that work.
//
// Call order in each step: BeginStep(), Inspect() and InspectLoss(), Update().
class Updater {
 public:
  virtual ~Updater() = default;

  // Starts a step. `continues`: this step is launched before it is known whether the previous one
  // was applied. If the previous one was not applied, this one counts as not finite too.
  virtual void BeginStep(const UpdateCoefficients& coefficients, bool continues) = 0;
  // Adds final gradients to the global norm and checks that they are finite. Each element is
  // inspected at most once in each step.
  virtual void Inspect(Segment range) = 0;
  // Checks that the loss is finite. `loss` is one number of the arenas' dtype, in device memory.
  virtual void InspectLoss(const Tensor& loss) = 0;
  // Updates the weights, or changes nothing if something inspected was not finite.
  virtual void Update() = 0;
  // The current step's sums, in device memory.
  virtual const UpdateSums* sums() const = 0;
};

}  // namespace carole
