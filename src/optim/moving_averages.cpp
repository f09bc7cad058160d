#include "src/optim/moving_averages.h"

#include <algorithm>
#include <utility>

#include "src/backend/arena_math.h"
#include "src/backend/update_rules.h"
#include "src/core/error.h"

namespace carole::optim {
namespace {

float* Floats(std::span<std::byte> arena) { return reinterpret_cast<float*>(arena.data()); }

int64_t NumFloats(std::span<std::byte> arena) {
  return static_cast<int64_t>(arena.size() / sizeof(float));
}

}  // namespace

MovingAverages::MovingAverages(double decay, DType dtype, std::vector<std::span<std::byte>> arenas,
                               const Backend& backend)
    : decay_(decay), dtype_(dtype), arenas_(std::move(arenas)), backend_(backend) {
  if (!(decay > 0 && decay <= 1)) {
    throw UsageError({.tag = "optim",
                      .option = "moving_average_decay",
                      .problem = "out of range",
                      .got = decay,
                      .want = "0 < value <= 1"});
  }
  for (const auto& arena : arenas_) {
    memory_.push_back(backend.Allocate(arena.size()));
    shadows_.emplace_back(memory_.back().get(), arena.size());
  }
}

void MovingAverages::Reset() {
  for (size_t i = 0; i < arenas_.size(); ++i)
    backend_.Copy(shadows_[i].data(), arenas_[i].data(), arenas_[i].size());
}

void MovingAverages::Swap() {
  for (size_t i = 0; i < arenas_.size(); ++i) {
    if (const ArenaMath* math = backend_.arena_math()) {
      math->Swap(Floats(arenas_[i]), Floats(shadows_[i]), NumFloats(arenas_[i]));
    } else {
      std::swap_ranges(arenas_[i].begin(), arenas_[i].end(), shadows_[i].begin());
    }
  }
}

template <typename T>
void MovingAverages::UpdateAll(double decay) {
  const T one_minus_decay = T(1) - static_cast<T>(decay);
  const int threads = backend_.threads();
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const T* values = reinterpret_cast<const T*>(arenas_[i].data());
    T* shadow = reinterpret_cast<T*>(shadows_[i].data());
    const int64_t count = static_cast<int64_t>(arenas_[i].size() / sizeof(T));
#pragma omp parallel for simd num_threads(threads) if (count > (1 << 16)) schedule(static)
    for (int64_t k = 0; k < count; ++k)
      shadow[k] = update_rules::MovingAverage(shadow[k], values[k], one_minus_decay);
  }
}

void MovingAverages::UpdateOnDevice(float decay, const bool* applied) {
  for (size_t i = 0; i < arenas_.size(); ++i) {
    backend_.arena_math()->UpdateAverage(applied, Floats(shadows_[i]), Floats(arenas_[i]),
                                         NumFloats(arenas_[i]), 1 - decay);
  }
}

void MovingAverages::Update(int64_t num_updates, const bool* applied) {
  const auto n = static_cast<float>(num_updates);
  const float decay = std::min(static_cast<float>(decay_), (1.0F + n) / (10.0F + n));
  if (!backend_.on_host()) return UpdateOnDevice(decay, applied);
  dtype_ == DType::kF64 ? UpdateAll<double>(decay) : UpdateAll<float>(decay);
}

}  // namespace carole::optim
