// Moving averages of a net's variables, as tf.train.ExponentialMovingAverage(decay, num_updates)
// keeps them:
//   shadow -= (1 - d) * (shadow - value), d = min(decay, (1 + n) / (10 + n)), in float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/backend/backend.h"

namespace carole::optim {

class MovingAverages {
 public:
  // `arenas` hold values of `dtype` (kF32 or kF64) in memory of the backend, as the shadows do; not
  // owned, and they and the backend outlive this. The shadows begin as zeros: Reset() them when the
  // variables have their first values. Throws UsageError when the decay makes no sense, DeviceError
  // when there is no memory.
  MovingAverages(double decay, DType dtype, std::vector<std::span<std::byte>> arenas,
                 const Backend& backend);

  void Reset();  // shadows become what the variables are
  // n: steps done, the one just applied included. Where the arenas are not the host's nothing
  // happens unless *applied, in their memory, is set.
  void Update(int64_t num_updates, const bool* applied);
  void Swap();  // exchanges shadows and variables

  size_t num_arenas() const { return arenas_.size(); }
  std::span<std::byte> shadow(size_t arena) const { return shadows_[arena]; }

 private:
  template <typename T>
  void UpdateAll(double decay);
  void UpdateOnDevice(float decay, const bool* applied);

  double decay_;
  DType dtype_;
  std::vector<std::span<std::byte>> arenas_;
  const Backend& backend_;
  std::vector<DeviceMemory> memory_;
  std::vector<std::span<std::byte>> shadows_;
};

}  // namespace carole::optim
