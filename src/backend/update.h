// What an optimizer does to the weights of an arena: the rules, and who applies them where the
// kernels' memory is. Shared by src/optim, which knows the optimizers, and the backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/core/dtype.h"
#include "src/tensor/tensor.h"

namespace carole {

inline constexpr int kMaxSlots = 2;  // numbers that a rule keeps beside each weight

// One for each row of update_rules.h.
enum class UpdateRule : uint8_t {
  kSgd,
  kMomentum,
  kNesterov,
  kLars,
  kRmsProp,
  kAdam,
  kAdagrad,
  kAdadelta,
  kFtrl,       // power -0.5: square roots instead of powers
  kFtrlPower,  // any power
};

// What a rule reads beside the elements; calculated with in the type of the elements.
struct UpdateCoefficients {
  double learning_rate = 0;
  double gradient_scale = 1;  // gradients are multiplied with it before all else
  double momentum = 0;
  double decay = 0, decay2 = 0;              // of averages of the gradient; decay2: of its square
  double decay_power = 0, decay2_power = 0;  // decay^t, decay2^t
  double epsilon = 0;
  double power = 0, l1 = 0, l2 = 0;  // ftrl's
};

// Elements [begin, end) of an arena.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
};

// Weights of a segment in a narrower type, which an Updater writes beside them.
struct WeightCopy {
  Segment of;
  DType dtype = DType::kBF16;  // or kF16, the same for all
  std::byte* memory = nullptr;
};

// The memory that an Updater works on, `count` elements in each arena, and what stays from step to
// step.
struct UpdateJob {
  UpdateRule rule = UpdateRule::kSgd;
  DType dtype = DType::kF32;  // or kF64
  std::byte* weights = nullptr;
  const std::byte* gradients = nullptr;
  std::byte* slots[kMaxSlots] = {};
  int64_t count = 0;
  std::vector<Segment> regularized;  // with L2, by place, not overlapping
  std::vector<WeightCopy> copies;    // by place, not overlapping; a host's Updater takes none
  double weight_decay = 0;           // the rule sees scale * gradient + weight_decay * weight there
  double clip_norm = 0;  // not 0: scale = clip_norm / max(clip_norm, norm of the gradient)
  double trust = 0;  // not 0: each regularized segment has a rate of its own (update_rules::Trust)
};

// A piece of an arena that one thread, or block of threads, works on.
struct UpdateBlock {
  Segment range;
  int segment = -1;                           // of UpdateJob::regularized; -1: none
  std::byte* copy = nullptr;                  // of its first element, where there are copies
  static constexpr int64_t kElements = 4096;  // at most: weights, gradients and two slots of so
                                              // many fit into the first caches
};
// Covers [0, count), in order.
std::vector<UpdateBlock> CutIntoBlocks(const UpdateJob& job);

// Of a step, in doubles.
struct UpdateSums {
  double gradient_squares = 0;  // of the inspected gradients, before clipping
  double weight_squares = 0;    // of the regularized weights before the update, if weight_decay
  bool is_finite = true;        // all that was inspected was; else Update() did nothing
};

// Applies a rule to all weights at once, or to none. Used by one thread; the result depends on no
// number of threads.
class Updater {
 public:
  virtual ~Updater() = default;

  // continues: on the step before, of which may not be known yet whether it was applied. If it was
  // not, this one counts as not finite either.
  virtual void BeginStep(const UpdateCoefficients& coefficients, bool continues) = 0;
  // Takes final gradients into the norm, each element at most once a step.
  virtual void Inspect(Segment range) = 0;
  // One number of the arenas' dtype that must be finite too.
  virtual void InspectLoss(const Tensor& loss) = 0;
  // Once a step, after all that is to be inspected. Changes nothing where that is not finite.
  virtual void Update() = 0;
  // Of the step in progress, in the backend's memory.
  virtual const UpdateSums* sums() const = 0;
};

}  // namespace carole
