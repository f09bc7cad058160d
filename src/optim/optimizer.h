// Optimizer: changes the weights of a flat arena by the gradients of another, range by range, so
// that a bucket of the all-reduce can be used as soon as its sum is there.
//
//   optimizer.BeginStep(learning_rate);
//   for each landed bucket: optimizer.Update(begin, end);
//   const double regularization_loss = optimizer.EndStep();
//
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
  std::vector<Segment> regularized;  // those with L2, by place, not overlapping
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
  // Each element of the arenas is updated exactly once between BeginStep() and EndStep().
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
    double squares = 0;  // result
  };

  template <typename T>
  void UpdateBlocks();
  void CutIntoBlocks(Segment range);
  void AddBlocks(Segment range, bool regularized);

  UpdatePlan plan_;
  double weight_decay_;
  Arenas arenas_;
  int threads_;
  std::vector<Buffer> memory_;
  Coefficients now_;           // of the step in progress
  double powers_[2] = {1, 1};  // decay^t, decay2^t with t of the next step
  std::vector<Block> blocks_;  // of the range in progress; kept to allocate only once
  double squares_ = 0;         // of the step in progress
  int64_t updated_ = 0;        // elements of the step in progress
};

}  // namespace carole::optim
