#include "src/train/gradient_flow.h"

#include <type_traits>

namespace carole::train {
namespace {

// Of the variables that have a gradient, in ready order.
std::vector<collectives::Range> Parameters(const VariableStore& store) {
  CAROLE_CHECK(!store.ready_order().empty(), "no variable has a gradient");
  std::vector<collectives::Range> parameters;
  for (int variable : store.ready_order()) {
    const VariablePlace& p = store.places()[variable];
    parameters.push_back({static_cast<size_t>(p.offset), static_cast<size_t>(p.count)});
  }
  return parameters;
}

}  // namespace

template <typename T>
GradientFlow<T>::GradientFlow(collectives::Communicator& communicator, const VariableStore& store,
                              const GradientFlowOptions& options)
    : communicator_(communicator),
      store_(store),
      options_(options),
      reducer_(communicator, store.gradients<T>(), Parameters(store), options.buckets,
               options.reduction),
      memory_(&store.backend()),
      gradients_(memory_) {
  for (const auto& [offset, count] : options.statistics) {
    const std::span<T> values = store.statistics<T>().subspan(offset, count);
    statistics_.push_back(
        {.values = values, .shards = ShardStatistics<T>(values, memory_), .in_flight = nullptr});
  }
  if constexpr (std::is_same_v<T, float>) {
    if (options.tune_buckets && communicator.size() > 1)
      tuner_ = std::make_unique<collectives::BucketTuner>(communicator, reducer_);
  }
}

template <typename T>
void GradientFlow<T>::BeginStep(int64_t step) {
  step_ = step;
  reducer_.BeginStep(step);
  Restart();
}

template <typename T>
void GradientFlow<T>::Restart() {
  gradients_.Clear();
  if (options_.num_shards == 0) return;
  for (Statistics& s : statistics_) s.shards.BeginStep();
}

template <typename T>
void GradientFlow<T>::EndMicroBatch() {
  gradients_.Add(store_.gradients<T>());
  if (options_.num_shards == 0) return;
  for (Statistics& s : statistics_) s.shards.EndShard(false);
}

template <typename T>
void GradientFlow<T>::Join(int ready_index) {
  const collectives::Range& range = reducer_.parameters()[ready_index];
  gradients_.Finish(range.offset, store_.gradients<T>().subspan(range.offset, range.count));
}

template <typename T>
void GradientFlow<T>::MarkReady(int ready_index) {
  Join(ready_index);
  reducer_.MarkReady(ready_index);
}

template <typename T>
void GradientFlow<T>::EndBackward() {
  for (Statistics& s : statistics_) {
    if (options_.num_shards > 0) s.shards.EndShard(true);
    s.in_flight = communicator_.AllReduceAsync(s.values, {.what = "statistics", .step = step_});
  }
}

template <typename T>
void GradientFlow<T>::WaitForStatistics() {
  const int64_t parts = options_.num_shards > 0 ? options_.num_shards : communicator_.size();
  const T factor = T{1} / static_cast<T>(parts);
  for (Statistics& s : statistics_) {
    s.in_flight->Wait();
    s.in_flight.reset();
    memory_.Scale(s.values.data(), factor, s.values.size());
  }
}

template <typename T>
void GradientFlow<T>::Tune(double step_ms) {
  if (tuner_ && !tuner_->done()) tuner_->AfterStep(step_ms);
}

template class GradientFlow<float>;
template class GradientFlow<double>;

}  // namespace carole::train
