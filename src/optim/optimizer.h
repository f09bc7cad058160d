// Optimizer: changes the weights of a flat arena by the gradients of another.
//
//   optimizer.BeginStep(learning_rate);
//   for each landed bucket: optimizer.Inspect(begin, end);
//   if (std::isfinite(optimizer.gradient_norm())) {
//     optimizer.Update(0, count);
//     regularization_loss = optimizer.EndStep();
//   }
//
// Nothing is changed before the whole gradient is known to be finite: so a step is applied as a
// whole or not at all, and as the sums are the same everywhere, all ranks decide alike.
// Padding of a variable's layout (weight 0, gradient 0) stays 0 under every optimizer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/core/dtype.h"
#include "src/optim/optimizers.h"
#include "src/tensor/buffer.h"

namespace carole::optim {

// Elements [begin, end) of an arena.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
};

// The memory that an optimizer works on; not owned.
struct Arenas {
  DType dtype = DType::kF32;  // or kF64
  std::byte* weights = nullptr;
  const std::byte* gradients = nullptr;
  int64_t count = 0;                 // elements of each
  std::vector<Segment> regularized;  // each variable with L2, by place, not overlapping
};

// A number of the optimizer that belongs to no variable; kept in checkpoints under this name.
struct OptimizerScalar {
  std::string name;
  double value = 0;
};

// Used by one thread; the work of a range is shared out to `threads` threads (OpenMP). The result
// depends on neither their number nor the cut into ranges.
class Optimizer {
 public:
  // Throws UsageError for flags that make no sense, DeviceError when there is no memory for slots.
  Optimizer(const OptimizerEntry& entry, const OptimizerOptions& options, Arenas arenas,
            int threads);

  void BeginStep(double learning_rate);
  // Takes gradients that are final into the norm; before Update(), each element at most once.
  void Inspect(int64_t begin, int64_t end);
  // L2 norm of the inspected gradients; not finite when one of them is not.
  double gradient_norm() const;
  // Each element of the arenas is updated exactly once between BeginStep() and EndStep(). All
  // gradients must be final, and inspected where their norm is clipped.
  void Update(int64_t begin, int64_t end);
  // The regularisation loss, weight_decay * sum w^2 / 2, of the weights before this step.
  double EndStep();

  // State for checkpoints. A slot's arena has the weights' dtype, form and offsets.
  const std::vector<Slot>& slots() const { return plan_.slots; }
  std::byte* slot(int index) const { return memory_[index].data(); }
  size_t slot_bytes() const;
  std::vector<OptimizerScalar> scalars() const;
  // Throws DataError when a name is not one of this optimizer.
  void SetScalar(const std::string& name, double value);

 private:
  struct Block {
    Segment range;
    bool regularized = false;
    double rate = 0;
    double squares = 0;  // result
  };

  template <typename T>
  void UpdateBlocks();
  template <typename T>
  double SquaresOf(const std::byte* arena, int64_t begin, int64_t end);
  double GradientScale() const;
  void FindRates();
  void MergeRegularized();
  void CutIntoBlocks(Segment range);
  void AddBlocks(Segment range, bool regularized, double rate);

  UpdatePlan plan_;
  double weight_decay_;
  double clip_norm_;
  Arenas arenas_;
  int threads_;
  std::vector<Buffer> memory_;
  Coefficients now_;           // of the step in progress
  double powers_[2] = {1, 1};  // decay^t, decay2^t with t of the next step
  std::vector<Block> blocks_;  // of the range in progress; kept to allocate only once
  std::vector<double> sums_;   // of blocks; kept likewise
  std::vector<double> rates_;  // of the regularised segments, where each has its own
  double squares_ = 0;         // of the step in progress: of the weights with L2
  double gradient_squares_ = 0;
  int64_t inspected_ = 0;  // elements
  int64_t updated_ = 0;
};

}  // namespace carole::optim
