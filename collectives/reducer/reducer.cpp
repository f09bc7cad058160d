// How gradients are reduced while backward computes more of them.
//
// The goal. Backward produces gradients from the last layer to the first. If they were reduced
// after backward, all of the communication would be exposed. So the reduction of finished gradients
// runs during backward. But one all-reduce for each parameter would pay the latency too often, and
// all ranks must start the same all-reduces in the same order. Ranks may mark gradients in
// different orders, so "start what is ready first" would not do.
//
// The data. Gradients lie in one arena in ready order, so a bucket of consecutive parameters is one
// contiguous range, and it is reduced in place without copies. Alignment gaps between parameters
// travel along. The hash of the bucket plan is part of each operation's tag, so the ranks compare
// it.
//
// The phases of a step:
//   - BeginStep() counts the unready parameters of each bucket.
//   - MarkReady() decrements the counter of the parameter's bucket. Then LaunchReady() starts all
//     buckets that are complete, in order, up to the first that is not. `pending_` holds one entry
//     for each launched bucket.
//   - WaitNext() waits for the next bucket and returns its range, so the caller can use the sums of
//     one bucket while later ones are still in flight. The time in Wait() is exposed communication.
//
//   Example: parameters 0 to 4 are ready in this order; buckets are {0}, {1, 2}, {3, 4}.
//     MarkReady(0)   launches bucket 0
//     MarkReady(2)   nothing: bucket 1 still needs parameter 1
//     MarkReady(4)   nothing
//     MarkReady(3)   nothing: bucket 2 is complete, but bucket 1 has not started
//     MarkReady(1)   launches buckets 1 and 2
//     WaitNext()     returns buckets 0, 1 and 2 in turn, then nullopt
//
// The first bucket is small (1 MB), so communication starts early, and so is the last one, which
// nothing hides. The others have 25 MB (BucketOptions). BucketTuner finds better buckets by
// measuring.
//
// Adasum needs the complete gradients of all ranks for each layer, so it runs in WaitNext(),
// without overlap. With kNone and with one rank there is nothing to do.
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
  num_unready_.assign(buckets_.size(), 0);
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
  for (size_t b = 0; b < buckets_.size(); ++b) num_unready_[b] = buckets_[b].num;
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
  --num_unready_[bucket_of_[parameter]];
  LaunchReady();
}

template <typename T>
void BasicReducer<T>::LaunchReady() {
  for (size_t b = pending_.size(); b < buckets_.size() && num_unready_[b] == 0; ++b) {
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

// Reduces a bucket within WaitNext(), for reductions other than kSum.
template <typename T>
void BasicReducer<T>::ReduceBlocking(const Bucket& bucket, const Tag& tag) {
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
               num_waited_, step_, num_unready_[num_waited_]);
  const auto start = Clock::now();
  if (pending_[num_waited_]) {
    pending_[num_waited_]->Wait();
  } else {
    ReduceBlocking(
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
