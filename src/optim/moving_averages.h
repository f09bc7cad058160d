// Moving averages (EMA) of a net's variables, computed as tf.train.ExponentialMovingAverage(decay,
// num_updates) does:
//   shadow -= (1 - d) * (shadow - value), d = min(decay, (1 + n) / (10 + n)), in float32.
// The average of a variable is called its shadow, as in TensorFlow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/backend/backend.h"

namespace carole::optim {

class MovingAverages {
 public:
  // `arenas` contain the variables: values of `dtype` (kF32 or kF64) in memory of the backend. They
  // are not owned; they and the backend must outlive this object. The shadows are allocated in the
  // same memory and are 0. Call Reset() when the variables have their initial values.
  // Throws UsageError if the decay is out of range, DeviceError if there is not enough memory.
  MovingAverages(double decay, DType dtype, std::vector<std::span<std::byte>> arenas,
                 const Backend& backend);

  // Copies the variables to the shadows.
  void Reset();
  // Updates the shadows after a step. `num_updates` (n in the formula) is the number of steps done,
  // including this one. `applied` is a flag in the backend's memory. If it is not set when the
  // device gets there, the shadows do not change.
  void Update(int64_t num_updates, const bool* applied);
  // Exchanges shadows and variables, for instance to evaluate with the averages.
  void Swap();

  size_t num_arenas() const { return arenas_.size(); }
  // The shadows of this arena, with the same layout.
  std::span<std::byte> shadow(size_t arena) const { return shadows_[arena]; }

 private:
  double decay_;
  DType dtype_;
  std::vector<std::span<std::byte>> arenas_;
  const Backend& backend_;
  std::vector<DeviceMemory> memory_;
  std::vector<std::span<std::byte>> shadows_;
};

}  // namespace carole::optim
