// Optimizer: changes the weights of a flat arena by the gradients of another, where the backend
// keeps them.
//
//   optimizer.BeginStep(learning_rate);
//   for each landed bucket: optimizer.Inspect(begin, end);
//   optimizer.Update();
//   if (optimizer.Sums().is_finite) optimizer.EndStep();
//
// Nothing is changed unless the whole gradient is finite: so a step is applied as a whole or not at
// all, and as the sums are the same everywhere, all ranks decide alike.
// Padding of a variable's layout (weight 0, gradient 0) stays 0 under every optimizer.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/backend/update.h"
#include "src/optim/optimizers.h"

namespace carole::optim {

// The memory that an optimizer works on; not owned.
struct ParameterArenas {
  DType dtype = DType::kF32;  // or kF64
  std::byte* weights = nullptr;
  const std::byte* gradients = nullptr;
  int64_t count = 0;                 // elements of each
  std::vector<Segment> regularized;  // each variable with L2, by place, not overlapping
  std::vector<WeightCopy> copies;    // that change with the weights, by place, not overlapping
};

// L2 norm of the inspected gradients times `gradient_scale`; not finite when one of them is not.
double GradientNorm(const UpdateSums& sums, double gradient_scale);
// weight_decay * sum w^2 / 2 of the regularized weights before the update.
double RegularizationLoss(const UpdateSums& sums, double weight_decay);

// A number of the optimizer that belongs to no variable; kept in checkpoints under this name.
struct OptimizerScalar {
  std::string name;
  double value = 0;
};

// Used by one thread; the work is shared out to the backend's threads. The result depends on their
// number no more than on the ranges that are inspected.
class Optimizer {
 public:
  // The arenas are memory of the backend, which outlives this. Throws UsageError for flags that
  // make no sense, DeviceError when there is no memory for slots.
  Optimizer(const OptimizerEntry& entry, const OptimizerOptions& options,
            const ParameterArenas& arenas, const Backend& backend);

  // gradient_scale: what gradients are to be multiplied with. continues: see Updater::BeginStep.
  void BeginStep(double learning_rate, double gradient_scale = 1, bool continues = false);
  // Takes gradients that are final into the norm; before Update(), each element at most once.
  void Inspect(int64_t begin, int64_t end);
  // A number of the arenas' type, in the backend's memory, that must be finite too.
  void InspectLoss(const Tensor& loss) { updater_->InspectLoss(loss); }
  // Once a step. All gradients must be final, and inspected where their norm is clipped.
  void Update();

  // What the step in progress has found, in the backend's memory.
  const UpdateSums* sums() const { return updater_->sums(); }
  // The same for the host, which waits for the kernels of a device.
  UpdateSums Sums() const;
  // After an Update() that is applied: counts it, for rules that go by that.
  void EndStep();

  // State for checkpoints. A slot's arena has the weights' dtype, form, offsets and backend.
  const std::vector<Slot>& slots() const { return plan_.slots; }
  std::byte* slot(int index) const { return memory_[index].get(); }
  size_t slot_bytes() const;
  std::vector<OptimizerScalar> scalars() const;
  // Throws DataError when a name is not one of this optimizer.
  void SetScalar(const std::string& name, double value);

 private:
  void AllocateSlot(const Slot& slot);

  const Backend& backend_;
  UpdatePlan plan_;
  const double clip_norm_;
  const DType dtype_;
  const int64_t count_;
  std::vector<DeviceMemory> memory_;  // of slots
  std::unique_ptr<Updater> updater_;
  UpdateCoefficients now_;     // of the step in progress
  double powers_[2] = {1, 1};  // decay^t, decay2^t with t of the next step
  int64_t inspected_ = 0;      // elements
};

}  // namespace carole::optim
