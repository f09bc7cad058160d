#include "collectives/reducer/reducer.h"

#include "collectives/reducer/adasum.h"
#include "src/core/check.h"

namespace carole::collectives {

template <typename T>
BasicReducer<T>::BasicReducer(Communicator& communicator, std::span<T> gradients,
                              std::vector<Range> parameters, const BucketOptions& options,
                              Reduction reduction)
    : communicator_(communicator),
      gradients_(gradients),
      parameters_(std::move(parameters)),
      reduction_(reduction),
      is_ready_(parameters_.size(), true),
      ready_ms_(parameters_.size(), 0) {
  if (!parameters_.empty()) {
    const Range& last = parameters_.back();
    CAROLE_CHECK(last.offset + last.count <= gradients.size(),
                 "gradients end at {}, the arena at {}", last.offset + last.count,
                 gradients.size());
  }
  SetBuckets(PlanBuckets(parameters_, sizeof(T), options));
}

template <typename T>
void BasicReducer<T>::SetBuckets(std::vector<Bucket> buckets) {
  CAROLE_CHECK_EQ(num_waited_, buckets_.size(), "buckets waited for in step {}", step_);
  bucket_of_.clear();
  for (size_t b = 0; b < buckets.size(); ++b) {
    CAROLE_CHECK_EQ(buckets[b].first, static_cast<int>(bucket_of_.size()), "bucket {} begins at",
                    b);
    bucket_of_.insert(bucket_of_.end(), buckets[b].num, static_cast<int>(b));
  }
  CAROLE_CHECK_EQ(bucket_of_.size(), parameters_.size(), "parameters in buckets");
  buckets_ = std::move(buckets);
  plan_ = HashOfPlan(buckets_);
  unready_.assign(buckets_.size(), 0);
  pending_.clear();
  num_waited_ = buckets_.size();
  communicator_.Barrier({.what = "bucket plan", .plan = plan_});
}

template <typename T>
void BasicReducer<T>::BeginStep(int64_t step) {
  CAROLE_CHECK_EQ(num_waited_, buckets_.size(), "buckets waited for in step {}", step_);
  step_ = step;
  num_waited_ = 0;
  pending_.clear();
  is_ready_.assign(is_ready_.size(), false);
  for (size_t b = 0; b < buckets_.size(); ++b) unready_[b] = buckets_[b].num;
  exposed_ms_ = 0;
  step_start_ = Clock::now();
}

template <typename T>
void BasicReducer<T>::MarkReady(int parameter) {
  CAROLE_CHECK(!is_ready_.at(parameter), "gradient {} is marked twice in step {}", parameter,
               step_);
  is_ready_[parameter] = true;
  ready_ms_[parameter] =
      std::chrono::duration<double, std::milli>(Clock::now() - step_start_).count();
  --unready_[bucket_of_[parameter]];
  LaunchReady();
}

template <typename T>
void BasicReducer<T>::LaunchReady() {
  for (size_t b = pending_.size(); b < buckets_.size() && unready_[b] == 0; ++b) {
    if (reduction_ != Reduction::kSum) {
      pending_.emplace_back();
      continue;
    }
    const std::span<T> range =
        gradients_.subspan(buckets_[b].range.offset, buckets_[b].range.count);
    const Tag tag{.what = "gradients",
                  .step = step_,
                  .bucket = static_cast<int>(b),
                  .plan = plan_,
                  .may_round = true};
    pending_.push_back(communicator_.AllReduceAsync(range, tag));
  }
}

// What WaitNext() does for a bucket that is not summed in flight.
template <typename T>
void BasicReducer<T>::Reduce(const Bucket& bucket, const Tag& tag) {
  if (reduction_ == Reduction::kNone || communicator_.size() == 1) return;
  std::vector<Range> layers;
  for (int p = bucket.first; p < bucket.first + bucket.num; ++p)
    layers.push_back({parameters_[p].offset - bucket.range.offset, parameters_[p].count});
  const std::span<T> data = gradients_.subspan(bucket.range.offset, bucket.range.count);
  AdasumOverRanks<T>(communicator_, data, layers, gathered_, tag);
}

template <typename T>
std::optional<Range> BasicReducer<T>::WaitNext() {
  if (num_waited_ == buckets_.size()) return std::nullopt;
  CAROLE_CHECK(num_waited_ < pending_.size(),
               "bucket {} is waited for in step {}, but {} of its gradients are not marked",
               num_waited_, step_, unready_[num_waited_]);
  const auto start = Clock::now();
  if (pending_[num_waited_]) {
    pending_[num_waited_]->Wait();
  } else {
    Reduce(
        buckets_[num_waited_],
        {.what = "adasum", .step = step_, .bucket = static_cast<int>(num_waited_), .plan = plan_});
  }
  const std::chrono::duration<double, std::milli> waited = Clock::now() - start;
  exposed_ms_ += waited.count();
  return buckets_[num_waited_++].range;
}

template class BasicReducer<float>;
template class BasicReducer<double>;

}  // namespace carole::collectives
