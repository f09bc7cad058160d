#include "src/train/gradient_flow.h"

#include <span>
#include <type_traits>
#include <utility>

#include "src/core/check.h"
#include "src/train/pairwise_sum.h"
#include "src/train/reproducible.h"

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

template <typename T>
class TypedFlow : public GradientFlow {
 public:
  TypedFlow(collectives::Communicator& communicator, const VariableStore& store,
            const GradientFlowOptions& options);

  void BeginStep(int64_t step) override;
  void EndMicroBatch() override;
  void MarkReady(int ready_index) override;
  void EndBackward() override;
  std::optional<collectives::Range> WaitNext() override { return reducer_.WaitNext(); }
  void WaitForStatistics() override;
  void Tune(double step_ms) override;
  void Restart() override;
  void Join(int ready_index) override;
  const collectives::BucketTuner* tuner() const override { return tuner_.get(); }

 private:
  collectives::Communicator& communicator_;
  const VariableStore& store_;
  const GradientFlowOptions options_;
  collectives::BasicReducer<T> reducer_;
  std::unique_ptr<collectives::BucketTuner> tuner_;
  const Vectors<T> memory_;
  PairwiseSum<T> gradients_;
  struct Statistics {
    std::span<T> values;
    ShardStatistics<T> shards;
    std::unique_ptr<collectives::Pending> in_flight;
  };
  std::vector<Statistics> statistics_;
  int64_t step_ = 0;
};

template <typename T>
TypedFlow<T>::TypedFlow(collectives::Communicator& communicator, const VariableStore& store,
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
void TypedFlow<T>::BeginStep(int64_t step) {
  step_ = step;
  reducer_.BeginStep(step);
  Restart();
}

template <typename T>
void TypedFlow<T>::Restart() {
  gradients_.Clear();
  if (options_.num_shards == 0) return;
  for (Statistics& s : statistics_) s.shards.BeginStep();
}

template <typename T>
void TypedFlow<T>::EndMicroBatch() {
  gradients_.Add(store_.gradients<T>());
  if (options_.num_shards == 0) return;
  for (Statistics& s : statistics_) s.shards.EndShard(false);
}

template <typename T>
void TypedFlow<T>::Join(int ready_index) {
  const collectives::Range& range = reducer_.parameters()[ready_index];
  gradients_.Finish(range.offset, store_.gradients<T>().subspan(range.offset, range.count));
}

template <typename T>
void TypedFlow<T>::MarkReady(int ready_index) {
  Join(ready_index);
  reducer_.MarkReady(ready_index);
}

template <typename T>
void TypedFlow<T>::EndBackward() {
  for (Statistics& s : statistics_) {
    if (options_.num_shards > 0) s.shards.EndShard(true);
    s.in_flight = communicator_.AllReduceAsync(s.values, {.what = "statistics", .step = step_});
  }
}

template <typename T>
void TypedFlow<T>::WaitForStatistics() {
  const int64_t parts = options_.num_shards > 0 ? options_.num_shards : communicator_.size();
  const T factor = T{1} / static_cast<T>(parts);
  for (Statistics& s : statistics_) {
    s.in_flight->Wait();
    s.in_flight.reset();
    memory_.Scale(s.values.data(), factor, s.values.size());
  }
}

template <typename T>
void TypedFlow<T>::Tune(double step_ms) {
  if (tuner_ && !tuner_->done()) tuner_->AfterStep(step_ms);
}

}  // namespace

std::unique_ptr<GradientFlow> MakeGradientFlow(collectives::Communicator& communicator,
                                               const VariableStore& store,
                                               const GradientFlowOptions& options) {
  if (store.dtype() == DType::kF64)
    return std::make_unique<TypedFlow<double>>(communicator, store, options);
  return std::make_unique<TypedFlow<float>>(communicator, store, options);
}

}  // namespace carole::train
