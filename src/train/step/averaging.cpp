#include "src/train/step/averaging.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "src/backend/host_view.h"

namespace carole::train {
namespace {

template <typename T>
void AverageBytes(collectives::Communicator& communicator, const ReplicaView& replica,
                  std::span<std::byte> bytes, std::string_view what, int64_t step) {
  if (communicator.size() == 1 || bytes.empty()) return;
  const HostView view(replica.store.backend(), bytes.data(), bytes.size());
  communicator.AllReduce(view.as<T>(), {.what = what, .step = step});
  const T factor = T{1} / static_cast<T>(communicator.size());
  for (T& value : view.as<T>()) value *= factor;
  view.Store();
}

template <typename T>
void AverageWeightsAs(collectives::Communicator& communicator, const ReplicaView& replica,
                      int64_t step) {
  AverageBytes<T>(communicator, replica, std::as_writable_bytes(replica.store.weights<T>()),
                  "mean of weights", step);
  optim::Optimizer& optimizer = replica.optimizer;
  for (size_t s = 0; s < optimizer.slots().size(); ++s) {
    AverageBytes<T>(communicator, replica,
                    {optimizer.slot(static_cast<int>(s)), optimizer.slot_bytes()}, "mean of slots",
                    step);
  }
  if (replica.moving_averages == nullptr) return;
  AverageBytes<T>(communicator, replica, replica.moving_averages->shadow(0),
                  "mean of moving averages", step);
}

template <typename T>
void AverageRunningStatisticsAs(collectives::Communicator& communicator, const ReplicaView& replica,
                                const std::vector<collectives::Range>& ranges, int64_t step) {
  for (const auto& [offset, count] : ranges) {
    const size_t begin = offset * sizeof(T), bytes = count * sizeof(T);
    AverageBytes<T>(communicator, replica, {replica.store.statistics_base() + begin, bytes},
                    "mean of statistics", step);
    if (replica.moving_averages == nullptr) continue;
    const std::span<std::byte> shadows = replica.moving_averages->shadow(1);
    const size_t first = std::min(begin, shadows.size());
    AverageBytes<T>(communicator, replica,
                    shadows.subspan(first, std::min(bytes, shadows.size() - first)),
                    "mean of moving averages", step);
  }
}

}  // namespace

void AverageWeights(collectives::Communicator& communicator, const ReplicaView& replica,
                    int64_t step) {
  replica.store.dtype() == DType::kF64 ? AverageWeightsAs<double>(communicator, replica, step)
                                       : AverageWeightsAs<float>(communicator, replica, step);
}

std::vector<collectives::Range> RunningStatisticsRanges(const VariableStore& store,
                                                        const std::vector<int>& frozen) {
  return RankLocalStatisticsRanges(store, frozen, false);
}

std::vector<collectives::Range> RankLocalStatisticsRanges(const VariableStore& store,
                                                          const std::vector<int>& frozen,
                                                          bool sync_batch_norm) {
  std::vector<collectives::Range> ranges;
  for (size_t v = 0; v < store.variables().size(); ++v) {
    const VariableSlice& p = store.variables()[v];
    if (p.trainable || std::ranges::count(frozen, static_cast<int>(v)) > 0) continue;
    if (sync_batch_norm && p.model_variable) continue;
    ranges.push_back({static_cast<size_t>(p.offset), static_cast<size_t>(p.count)});
  }
  std::ranges::sort(ranges, {}, &collectives::Range::offset);
  std::vector<collectives::Range> joined;
  for (const collectives::Range& range : ranges) {
    if (!joined.empty() && joined.back().offset + joined.back().count == range.offset) {
      joined.back().count += range.count;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

void AverageRunningStatistics(collectives::Communicator& communicator, const ReplicaView& replica,
                              const std::vector<collectives::Range>& ranges, int64_t step) {
  replica.store.dtype() == DType::kF64
      ? AverageRunningStatisticsAs<double>(communicator, replica, ranges, step)
      : AverageRunningStatisticsAs<float>(communicator, replica, ranges, step);
}

}  // namespace carole::train
