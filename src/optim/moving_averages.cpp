#include "src/optim/moving_averages.h"

#include <algorithm>
#include <utility>

#include "src/backend/arena_math.h"
#include "src/core/error.h"

namespace carole::optim {
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
  for (size_t i = 0; i < arenas_.size(); ++i)
    backend_.arena_math().Swap(arenas_[i].data(), shadows_[i].data(), arenas_[i].size());
}

void MovingAverages::Update(int64_t num_updates, const bool* applied) {
  const auto n = static_cast<float>(num_updates);
  const float decay = std::min(static_cast<float>(decay_), (1.0F + n) / (10.0F + n));
  const double one_minus_decay = 1 - static_cast<double>(decay);
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const auto count = static_cast<int64_t>(arenas_[i].size() / SizeOf(dtype_));
    backend_.arena_math().UpdateAverage(applied, dtype_, shadows_[i].data(), arenas_[i].data(),
                                        count, one_minus_decay);
  }
}

}  // namespace carole::optim
