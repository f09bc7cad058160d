// Optimizer: updates all weights of a net, in one flat arena, with the gradients in another arena.
// Both are in the backend's memory.
//
//   optimizer.BeginStep(learning_rate);
//   for each reduced bucket: optimizer.Inspect(begin, end);
//   optimizer.Update();
//   if (optimizer.Sums().is_finite) optimizer.EndStep();
//
// Update() changes nothing if a gradient or the loss is not finite. So a step is applied to all
// weights or to none. All ranks have the same sums, so all of them decide in the same way.
//
// Variables may contain padding (weight 0, gradient 0). It stays 0 with every optimizer.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/backend/update.h"
#include "src/optim/optimizers.h"

namespace carole::optim {

// The memory that an optimizer works on. It is not owned. The lists are in ascending order of their
// ranges, which do not overlap.
struct ParameterArenas {
  DType dtype = DType::kF32;  // or kF64
  std::byte* weights = nullptr;
  const std::byte* gradients = nullptr;
  int64_t count = 0;                     // elements of each arena
  std::vector<Segment> regularized;      // one for each variable with L2 regularization
  std::vector<Segment> not_regularized;  // one for each other variable
  std::vector<WeightCopy> copies;        // 16-bit copies that are updated with the weights
};

// Returns the L2 norm of the inspected gradients times `gradient_scale`. It is not finite if one of
// them is not.
double GradientNorm(const UpdateSums& sums, double gradient_scale);
// Returns weight_decay * sum w^2 / 2 over the regularized weights before the update; 0 for
// optimizers that decay the weights themselves.
double RegularizationLoss(const UpdateSums& sums, double weight_decay);

// A number that belongs to the optimizer and not to a variable. Checkpoints store it under this
// name.
struct OptimizerScalar {
  std::string name;
  double value = 0;
};

// Called by one thread. The work is done by the threads of the backend; their number does not
// change the result. The ranges given to Inspect() can change the last bits of the norm.
class Optimizer {
 public:
  // `arenas` are memory of `backend`; both must outlive the optimizer. Throws UsageError if a flag
  // is out of range, DeviceError if there is not enough memory for the slots.
  Optimizer(const OptimizerEntry& entry, const OptimizerOptions& options,
            const ParameterArenas& arenas, const Backend& backend);

  // Starts a step. Gradients are multiplied by gradient_scale first. For `continues` see
  // Updater::BeginStep().
  void BeginStep(double learning_rate, double gradient_scale = 1, bool continues = false);
  // Adds the gradients [begin, end), which must be final, to the global norm. Inspect each element
  // at most once in a step.
  void Inspect(int64_t begin, int64_t end);
  // Checks that the loss is finite. `loss` is one number of the arenas' dtype in the backend's
  // memory.
  void InspectLoss(const Tensor& loss) { updater_->InspectLoss(loss); }
  // Updates the weights. Call it once per step. All gradients must be final. If the norm is
  // clipped, all of them must have been inspected, else it throws InternalError.
  void Update();

  // The sums of the current step, in the backend's memory.
  const UpdateSums* sums() const { return updater_->sums(); }
  // The same in host memory. Waits for the kernels.
  UpdateSums Sums() const;
  // Counts an Update() that was applied, for rules that depend on the number of steps.
  void EndStep();

  // State for checkpoints. The arena of a slot has the same dtype, size and offsets as that of the
  // weights, and is in the same memory.
  const std::vector<Slot>& slots() const { return plan_.slots; }
  std::byte* slot(int index) const { return memory_[index].get(); }
  size_t slot_bytes() const;
  std::vector<OptimizerScalar> scalars() const;
  // Throws DataError if this optimizer has no scalar of this name.
  void SetScalar(const std::string& name, double value);

 private:
  void AllocateSlot(const Slot& slot);

  const Backend& backend_;
  const UpdatePlan plan_;
  const double clip_norm_;
  const DType dtype_;
  const int64_t count_;
  std::vector<DeviceMemory> memory_;  // of slots
  std::unique_ptr<Updater> updater_;
  double powers_[2] = {1, 1};  // decay^t and decay2^t for the next step t (Powers::kProducts)
  double update_count_ = 0;    // updates that were applied
  int64_t inspected_ = 0;      // elements inspected in the current step
};

}  // namespace carole::optim
