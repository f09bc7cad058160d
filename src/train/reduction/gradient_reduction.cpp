#include "src/train/reduction/gradient_reduction.h"

#include <span>
#include <type_traits>
#include <utility>

#include "src/core/check.h"
#include "src/train/reduction/pairwise_sum.h"
#include "src/train/reduction/reproducible.h"

namespace carole::train {
namespace {

// Returns the ranges of the variables that have a gradient, in ready order: the order in which
// backward makes gradients final.
std::vector<collectives::Range> ReadyRanges(const VariableStore& store) {
  CAROLE_CHECK(!store.ready_order().empty(), "no variable has a gradient");
  std::vector<collectives::Range> parameters;
  for (int variable : store.ready_order()) {
    const VariableSlice& p = store.variables()[variable];
    parameters.push_back({static_cast<size_t>(p.offset), static_cast<size_t>(p.count)});
  }
  return parameters;
}

// The buffer that the communicator reduces: the values themselves, or a copy of them in host
// memory.
template <typename T>
class ReductionBuffer {
 public:
  ReductionBuffer(collectives::Communicator& communicator, const Backend& backend,
                  std::span<T> values, bool through_host)
      : backend_(backend),
        values_(values),
        host_(through_host ? communicator.AllocateArena(values.size_bytes()) : nullptr) {}

  // The memory to reduce.
  std::span<T> buffer() const {
    return host_ ? std::span(reinterpret_cast<T*>(host_->data()), values_.size()) : values_;
  }
  std::span<T> values() const { return values_; }
  bool is_copy() const { return host_ != nullptr; }

  // Copy the values to the host before a reduction and back after it; do nothing without a copy.
  // They run in the order of the device's kernels. The host waits for CopyToHost().
  void CopyToHost() const {
    if (host_) backend_.CopyToHost(host_->data(), Bytes(values_.data()), values_.size_bytes());
  }
  void CopyFromHost(const collectives::Range& range) const {
    if (!host_) return;
    backend_.CopyFromHost(Bytes(values_.data() + range.offset),
                          Bytes(buffer().data() + range.offset), range.count * sizeof(T));
  }

 private:
  static std::byte* Bytes(T* values) { return reinterpret_cast<std::byte*>(values); }

  const Backend& backend_;
  std::span<T> values_;
  std::unique_ptr<collectives::CommArena> host_;
};

template <typename T>
class TypedGradientReduction : public GradientReduction {
 public:
  TypedGradientReduction(collectives::Communicator& communicator, const VariableStore& store,
                         const GradientReductionOptions& options);

  void BeginMicroBatches() override;
  void EndMicroBatch() override;
  void BeginReduction(int64_t step) override;
  void MarkReady(int ready_index) override;
  void EndBackward() override;
  std::optional<collectives::Range> WaitNext() override;
  void WaitForStatistics() override;
  void Tune(double step_ms) override;
  void PlanBuckets(const collectives::BucketOptions& options) override;
  void FinishAccumulation(int ready_index) override;
  const collectives::BucketTuner* tuner() const override { return tuner_.get(); }

 private:
  collectives::Communicator& communicator_;
  const VariableStore& store_;
  const GradientReductionOptions options_;
  const ReductionBuffer<T> buffer_;
  collectives::BasicReducer<T> reducer_;
  std::unique_ptr<collectives::BucketTuner> tuner_;
  const VectorOps<T> vector_ops_;
  PairwiseSum<T> gradients_;  // of the micro-batches so far
  struct Statistics {
    ReductionBuffer<T> buffer;
    DeviceMemory copy;  // null unless StatisticsAreEarly()
    ShardStatistics<T> shards;
    std::unique_ptr<collectives::Pending> in_flight;
  };
  // Backward hides the reduction of the statistics if it starts when backward begins. They are
  // final then, but kernels of backward may still read them, or write the same values again to
  // recompute activations. So a copy is reduced. With shards, which are summed first, and with
  // reductions through the host, which wait for the device, the reduction starts after backward.
  bool StatisticsAreEarly() const { return options_.num_shards == 0 && !options_.through_host; }
  void BeginStatistics();
  void ReduceStatistics(Statistics& statistics, std::span<T> values);

  std::vector<Statistics> statistics_;
  bool has_begun_statistics_ = false;  // in this step
  int64_t step_ = 0;
};

template <typename T>
TypedGradientReduction<T>::TypedGradientReduction(collectives::Communicator& communicator,
                                                  const VariableStore& store,
                                                  const GradientReductionOptions& options)
    : communicator_(communicator),
      store_(store),
      options_(options),
      buffer_(communicator, store.backend(), store.gradients<T>(), options.through_host),
      reducer_(communicator, buffer_.buffer(), ReadyRanges(store), options.buckets,
               options.reduction),
      vector_ops_(store.backend()),
      gradients_(vector_ops_) {
  for (const auto& [offset, count] : options.statistics) {
    const std::span<T> values = store.statistics<T>().subspan(offset, count);
    statistics_.push_back(
        {.buffer = ReductionBuffer<T>(communicator, store.backend(), values, options.through_host),
         .copy = StatisticsAreEarly() ? vector_ops_.Allocate(values.size()) : nullptr,
         .shards = ShardStatistics<T>(values, vector_ops_),
         .in_flight = nullptr});
  }
  if constexpr (std::is_same_v<T, float>) {
    if (options.tune_buckets && communicator.size() > 1)
      tuner_ = std::make_unique<collectives::BucketTuner>(communicator, reducer_);
  }
}

template <typename T>
void TypedGradientReduction<T>::BeginMicroBatches() {
  gradients_.Clear();
  if (options_.num_shards == 0) return;
  for (Statistics& s : statistics_) s.shards.BeginStep();
}

template <typename T>
void TypedGradientReduction<T>::EndMicroBatch() {
  gradients_.Add(store_.gradients<T>());
  if (options_.num_shards == 0) return;
  for (Statistics& s : statistics_) s.shards.EndShard(false);
}

template <typename T>
void TypedGradientReduction<T>::BeginReduction(int64_t step) {
  step_ = step;
  has_begun_statistics_ = false;
  reducer_.BeginStep(step);
}

template <typename T>
void TypedGradientReduction<T>::FinishAccumulation(int ready_index) {
  const collectives::Range& range = reducer_.parameters()[ready_index];
  gradients_.Finish(range.offset, store_.gradients<T>().subspan(range.offset, range.count));
}

template <typename T>
void TypedGradientReduction<T>::ReduceStatistics(Statistics& statistics, std::span<T> values) {
  statistics.in_flight =
      communicator_.AllReduceAsync(values, {.what = "statistics", .step = step_});
}

template <typename T>
void TypedGradientReduction<T>::BeginStatistics() {
  for (Statistics& s : statistics_) {
    const std::span<T> values = s.buffer.values();
    const std::span copy(reinterpret_cast<T*>(s.copy.get()), values.size());
    vector_ops_.Copy(copy.data(), values.data(), values.size());
    ReduceStatistics(s, copy);
  }
}

template <typename T>
void TypedGradientReduction<T>::MarkReady(int ready_index) {
  if (StatisticsAreEarly() && !std::exchange(has_begun_statistics_, true)) BeginStatistics();
  FinishAccumulation(ready_index);
  if (!buffer_.is_copy()) reducer_.MarkReady(ready_index);
}

template <typename T>
void TypedGradientReduction<T>::EndBackward() {
  buffer_.CopyToHost();
  for (size_t p = 0; buffer_.is_copy() && p < reducer_.parameters().size(); ++p)
    reducer_.MarkReady(static_cast<int>(p));
  if (StatisticsAreEarly()) return;
  for (Statistics& s : statistics_) {
    if (options_.num_shards > 0) s.shards.EndShard(true);
    s.buffer.CopyToHost();
    ReduceStatistics(s, s.buffer.buffer());
  }
}

template <typename T>
std::optional<collectives::Range> TypedGradientReduction<T>::WaitNext() {
  const std::optional<collectives::Range> range = reducer_.WaitNext();
  if (range) buffer_.CopyFromHost(*range);
  return range;
}

template <typename T>
void TypedGradientReduction<T>::WaitForStatistics() {
  const int64_t num_parts = options_.num_shards > 0 ? options_.num_shards : communicator_.size();
  const T factor = T{1} / static_cast<T>(num_parts);
  for (Statistics& s : statistics_) {
    s.in_flight->Wait();
    s.in_flight.reset();
    const std::span<T> values = s.buffer.values();
    s.buffer.CopyFromHost({.offset = 0, .count = values.size()});
    if (s.copy != nullptr)
      vector_ops_.Copy(values.data(), reinterpret_cast<const T*>(s.copy.get()), values.size());
    vector_ops_.Scale(values.data(), factor, values.size());
  }
}

template <typename T>
void TypedGradientReduction<T>::Tune(double step_ms) {
  if (tuner_ && !tuner_->done()) tuner_->AfterStep(step_ms);
}

template <typename T>
void TypedGradientReduction<T>::PlanBuckets(const collectives::BucketOptions& options) {
  CAROLE_CHECK(tuner_ == nullptr, "buckets are tuned");
  reducer_.SetBuckets(collectives::PlanBuckets(reducer_.parameters(), sizeof(T), options));
}

}  // namespace

std::unique_ptr<GradientReduction> MakeGradientReduction(collectives::Communicator& communicator,
                                                         const VariableStore& store,
                                                         const GradientReductionOptions& options) {
  if (store.dtype() == DType::kF64)
    return std::make_unique<TypedGradientReduction<double>>(communicator, store, options);
  return std::make_unique<TypedGradientReduction<float>>(communicator, store, options);
}

}  // namespace carole::train
