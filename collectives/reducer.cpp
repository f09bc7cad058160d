#include "collectives/reducer.h"

#include <chrono>

#include "src/core/check.h"

namespace carole::collectives {

template <typename T>
BasicReducer<T>::BasicReducer(Communicator& communicator, std::span<T> gradients,
                              std::vector<Range> parameters, const BucketOptions& options)
    : communicator_(communicator),
      gradients_(gradients),
      buckets_(PlanBuckets(parameters, sizeof(T), options)),
      plan_(HashOfPlan(buckets_)),
      is_ready_(parameters.size(), true),
      unready_(buckets_.size(), 0),
      num_waited_(buckets_.size()) {
  if (!parameters.empty()) {
    const Range& last = parameters.back();
    CAROLE_CHECK(last.offset + last.count <= gradients.size(),
                 "gradients end at {}, the arena at {}", last.offset + last.count,
                 gradients.size());
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    bucket_of_.insert(bucket_of_.end(), buckets_[b].num, static_cast<int>(b));
  }
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
  stats_ = {.num_buckets = static_cast<int>(buckets_.size())};
}

template <typename T>
void BasicReducer<T>::MarkReady(int parameter) {
  CAROLE_CHECK(!is_ready_.at(parameter), "gradient {} is marked twice in step {}", parameter,
               step_);
  is_ready_[parameter] = true;
  --unready_[bucket_of_[parameter]];
  LaunchReady();
}

template <typename T>
void BasicReducer<T>::LaunchReady() {
  for (size_t b = pending_.size(); b < buckets_.size() && unready_[b] == 0; ++b) {
    const std::span<T> range =
        gradients_.subspan(buckets_[b].range.offset, buckets_[b].range.count);
    const Tag tag{.what = "gradients", .step = step_, .bucket = static_cast<int>(b), .plan = plan_};
    pending_.push_back(communicator_.AllReduceAsync(range, tag));
    if (communicator_.size() > 1) stats_.bytes += range.size_bytes();
  }
}

template <typename T>
std::optional<Range> BasicReducer<T>::WaitNext() {
  if (num_waited_ == buckets_.size()) return std::nullopt;
  CAROLE_CHECK(num_waited_ < pending_.size(),
               "bucket {} is waited for in step {}, but {} of its gradients are not marked",
               num_waited_, step_, unready_[num_waited_]);
  const auto start = std::chrono::steady_clock::now();
  pending_[num_waited_]->Wait();
  const std::chrono::duration<double, std::milli> waited = std::chrono::steady_clock::now() - start;
  stats_.exposed_ms += waited.count();
  return buckets_[num_waited_++].range;
}

template class BasicReducer<float>;
template class BasicReducer<double>;

}  // namespace carole::collectives
