#include "src/optim/moving_averages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/core/error.h"

namespace carole::optim {

MovingAverages::MovingAverages(double decay, DType dtype, std::vector<std::span<std::byte>> arenas,
                               int threads)
    : decay_(decay), dtype_(dtype), arenas_(std::move(arenas)), threads_(threads) {
  if (!(decay > 0 && decay < 1)) {
    throw UsageError(fmt::format(
        "[optim] --moving_average_decay: makes no sense: got {}, want 0 < value < 1", decay));
  }
  for (const auto& arena : arenas_) {
    memory_.emplace_back(arena.size());
    shadows_.emplace_back(memory_.back().data(), arena.size());
  }
}

void MovingAverages::Reset() {
  for (size_t i = 0; i < arenas_.size(); ++i)
    std::copy(arenas_[i].begin(), arenas_[i].end(), shadows_[i].begin());
}

void MovingAverages::Swap() {
  for (size_t i = 0; i < arenas_.size(); ++i)
    std::swap_ranges(arenas_[i].begin(), arenas_[i].end(), shadows_[i].begin());
}

template <typename T>
void MovingAverages::UpdateAll(double decay) {
  const T rest = T(1) - static_cast<T>(decay);
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const T* values = reinterpret_cast<const T*>(arenas_[i].data());
    T* shadow = reinterpret_cast<T*>(shadows_[i].data());
    const int64_t count = static_cast<int64_t>(arenas_[i].size() / sizeof(T));
#pragma omp parallel for simd num_threads(threads_) if (count > (1 << 16)) schedule(static)
    for (int64_t k = 0; k < count; ++k) shadow[k] -= rest * (shadow[k] - values[k]);
  }
}

void MovingAverages::Update(int64_t num_updates) {
  const auto n = static_cast<float>(num_updates);
  const float decay = std::min(static_cast<float>(decay_), (1.0F + n) / (10.0F + n));
  dtype_ == DType::kF64 ? UpdateAll<double>(decay) : UpdateAll<float>(decay);
}

}  // namespace carole::optim
