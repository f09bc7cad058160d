#include "src/train/reduction/gradient_reduction.h"

#include <span>
#include <type_traits>

#include "src/core/check.h"
#include "src/train/reduction/pairwise_sum.h"
#include "src/train/reduction/reproducible.h"

namespace carole::train {
namespace {

// Of the variables that have a gradient, in ready order.
std::vector<collectives::Range> Parameters(const VariableStore& store) {
  CAROLE_CHECK(!store.ready_order().empty(), "no variable has a gradient");
  std::vector<collectives::Range> parameters;
  for (int variable : store.ready_order()) {
    const VariableSlice& p = store.places()[variable];
    parameters.push_back({static_cast<size_t>(p.offset), static_cast<size_t>(p.count)});
  }
  return parameters;
}

// Memory that ranks sum: as it is, or by a copy on the host.
template <typename T>
class Summed {
 public:
  Summed(collectives::Communicator& communicator, const Backend& backend, std::span<T> values,
         bool through_host)
      : backend_(backend),
        values_(values),
        host_(through_host ? communicator.AllocateArena(values.size_bytes()) : nullptr) {}

  // What to sum.
  std::span<T> place() const {
    return host_ ? std::span(reinterpret_cast<T*>(host_->data()), values_.size()) : values_;
  }
  std::span<T> values() const { return values_; }
  bool is_copy() const { return host_ != nullptr; }

  // Before and after a sum. On a device in the order of its kernels; the host waits for Fetch().
  void Fetch() const {
    if (host_) backend_.CopyToHost(host_->data(), Bytes(values_.data()), values_.size_bytes());
  }
  void Return(const collectives::Range& range) const {
    if (!host_) return;
    backend_.CopyFromHost(Bytes(values_.data() + range.offset),
                          Bytes(place().data() + range.offset), range.count * sizeof(T));
  }

 private:
  static std::byte* Bytes(T* values) { return reinterpret_cast<std::byte*>(values); }

  const Backend& backend_;
  std::span<T> values_;
  std::unique_ptr<collectives::Arena> host_;
};

template <typename T>
class TypedFlow : public GradientReduction {
 public:
  TypedFlow(collectives::Communicator& communicator, const VariableStore& store,
            const GradientFlowOptions& options);

  void BeginMicroBatches() override;
  void EndMicroBatch() override;
  void BeginSums(int64_t step) override;
  void MarkReady(int ready_index) override;
  void EndBackward() override;
  std::optional<collectives::Range> WaitNext() override;
  void WaitForStatistics() override;
  void Tune(double step_ms) override;
  void Join(int ready_index) override;
  const collectives::BucketTuner* tuner() const override { return tuner_.get(); }

 private:
  collectives::Communicator& communicator_;
  const VariableStore& store_;
  const GradientFlowOptions options_;
  const Summed<T> summed_;
  collectives::BasicReducer<T> reducer_;
  std::unique_ptr<collectives::BucketTuner> tuner_;
  const Vectors<T> memory_;
  PairwiseSum<T> gradients_;
  struct Statistics {
    Summed<T> summed;
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
      summed_(communicator, store.backend(), store.gradients<T>(), options.through_host),
      reducer_(communicator, summed_.place(), Parameters(store), options.buckets,
               options.reduction),
      memory_(&store.backend()),
      gradients_(memory_) {
  for (const auto& [offset, count] : options.statistics) {
    const std::span<T> values = store.statistics<T>().subspan(offset, count);
    statistics_.push_back(
        {.summed = Summed<T>(communicator, store.backend(), values, options.through_host),
         .shards = ShardStatistics<T>(values, memory_),
         .in_flight = nullptr});
  }
  if constexpr (std::is_same_v<T, float>) {
    if (options.tune_buckets && communicator.size() > 1)
      tuner_ = std::make_unique<collectives::BucketTuner>(communicator, reducer_);
  }
}

template <typename T>
void TypedFlow<T>::BeginMicroBatches() {
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
void TypedFlow<T>::BeginSums(int64_t step) {
  step_ = step;
  reducer_.BeginStep(step);
}

template <typename T>
void TypedFlow<T>::Join(int ready_index) {
  const collectives::Range& range = reducer_.parameters()[ready_index];
  gradients_.Finish(range.offset, store_.gradients<T>().subspan(range.offset, range.count));
}

template <typename T>
void TypedFlow<T>::MarkReady(int ready_index) {
  Join(ready_index);
  if (!summed_.is_copy()) reducer_.MarkReady(ready_index);
}

template <typename T>
void TypedFlow<T>::EndBackward() {
  summed_.Fetch();
  for (size_t p = 0; summed_.is_copy() && p < reducer_.parameters().size(); ++p)
    reducer_.MarkReady(static_cast<int>(p));
  for (Statistics& s : statistics_) {
    if (options_.num_shards > 0) s.shards.EndShard(true);
    s.summed.Fetch();
    s.in_flight =
        communicator_.AllReduceAsync(s.summed.place(), {.what = "statistics", .step = step_});
  }
}

template <typename T>
std::optional<collectives::Range> TypedFlow<T>::WaitNext() {
  const std::optional<collectives::Range> range = reducer_.WaitNext();
  if (range) summed_.Return(*range);
  return range;
}

template <typename T>
void TypedFlow<T>::WaitForStatistics() {
  const int64_t parts = options_.num_shards > 0 ? options_.num_shards : communicator_.size();
  const T factor = T{1} / static_cast<T>(parts);
  for (Statistics& s : statistics_) {
    s.in_flight->Wait();
    s.in_flight.reset();
    const std::span<T> values = s.summed.values();
    s.summed.Return({.offset = 0, .count = values.size()});
    memory_.Scale(values.data(), factor, values.size());
  }
}

template <typename T>
void TypedFlow<T>::Tune(double step_ms) {
  if (tuner_ && !tuner_->done()) tuner_->AfterStep(step_ms);
}

}  // namespace

std::unique_ptr<GradientReduction> MakeGradientFlow(collectives::Communicator& communicator,
                                                    const VariableStore& store,
                                                    const GradientFlowOptions& options) {
  if (store.dtype() == DType::kF64)
    return std::make_unique<TypedFlow<double>>(communicator, store, options);
  return std::make_unique<TypedFlow<float>>(communicator, store, options);
}

}  // namespace carole::train
