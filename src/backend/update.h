// Weight updates: the optimizers' rules and the interface that applies them in device memory.
// src/optim implements the optimizers with it; the backends implement Updater.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/core/dtype.h"
#include "src/tensor/tensor.h"

namespace carole {

inline constexpr int kMaxSlots = 2;  // optimizer slots (state values) for each weight

// The rules of update_rules.h.
enum class UpdateRule : uint8_t {
  kSgd,
  kMomentum,
  kNesterov,
  kLars,
  kRmsProp,
  kAdam,
  kAdagrad,
  kAdadelta,
  kFtrl,       // with power -0.5, so that it needs square roots instead of powers
  kFtrlPower,  // with any power
};

// The numbers of one step that a rule reads in addition to weight, gradient and slots. The rule
// rounds them to the type of the weights.
struct UpdateCoefficients {
  double learning_rate = 0;
  double gradient_scale = 1;  // gradients are multiplied by it before anything else
  double momentum = 0;
  double decay = 0, decay2 = 0;  // decay of the averages of the gradient and of its square
  double decay_power = 0, decay2_power = 0;  // decay^t, decay2^t
  double epsilon = 0;
  double power = 0, l1 = 0, l2 = 0;  // FTRL
};

// Elements [begin, end) of an arena.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
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
  UpdateRule rule = UpdateRule::kSgd;
  DType dtype = DType::kF32;  // or kF64
  std::byte* weights = nullptr;
  const std::byte* gradients = nullptr;
  std::byte* slots[kMaxSlots] = {};
  int64_t count = 0;
  std::vector<Segment> regularized;  // weights with L2 regularization
  std::vector<WeightCopy> copies;    // only GPUs support them
  // In regularized segments, the rule gets scale * gradient + weight_decay * weight instead of
  // scale * gradient.
  double weight_decay = 0;
  // Clipping by global norm, if not 0: scale = clip_norm / max(clip_norm, norm of the gradient).
  double clip_norm = 0;
  // The trust coefficient of LARS. If not 0, each regularized segment has its own learning rate
  // (update_rules::TrustRatio).
  double trust = 0;
};

// A piece of an arena that one thread (CPU) or one thread block (GPU) updates.
struct UpdateBlock {
  Segment range;
  int segment = -1;           // index into UpdateJob::regularized; -1: none
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
  double weight_squares = 0;    // sum over the regularized weights before the update; 0 if no decay
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
