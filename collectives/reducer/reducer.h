// Reducer: sums gradients over all ranks while backward is still running.
//
//   reducer.BeginStep(step);
//   … backward: reducer.MarkReady(p) as soon as the gradient of parameter p is final …
//   while (const auto range = reducer.WaitNext())
//     optimizer.Inspect(range->offset, range->offset + range->count);
//
// Gradients travel in buckets. The all-reduce of a bucket starts when all its gradients are ready
// and all earlier buckets have started. So the order is the same on every rank, whatever the order
// of MarkReady() is. The result is the sum and not the average, because the loss is scaled. With
// one rank nothing is sent, and WaitNext() returns at once.
//
// Other reductions than the sum do not overlap with backward. kAdasum runs in WaitNext(). kNone
// leaves every rank its own gradients.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/reducer/bucketing.h"

namespace carole::collectives {

enum class Reduction : uint8_t { kSum, kAdasum, kNone };

// T is float or double. One thread at a time uses a reducer.
template <typename T>
class BasicReducer {
 public:
  // `gradients` is the flat gradient arena, preferably from communicator.AllocateArena(). It and
  // the communicator must outlive the reducer. `parameters` are the parameters' ranges in it, in
  // the order in which their gradients become final ("ready order"). Collective: the ranks compare
  // their bucket plans. Throws CommError if plans differ.
  BasicReducer(Communicator& communicator, std::span<T> gradients, std::vector<Range> parameters,
               const BucketOptions& options = {}, Reduction reduction = Reduction::kSum);

  // Replaces the buckets. Call it between steps. Collective: the ranks compare their plans again.
  // Throws CommError if plans differ, and InternalError unless the buckets contain all parameters
  // in order.
  void SetBuckets(std::vector<Bucket> buckets);

  // Starts a step. WaitNext() must have returned all buckets of the step before.
  void BeginStep(int64_t step);

  // Tells that the gradient of `parameter` (a number in ready order) is final. It must stay
  // untouched until WaitNext() has returned its bucket. Call this once for each parameter in each
  // step. Does not block.
  void MarkReady(int parameter);

  // Waits for the sum of the next bucket and returns its range; nullopt if all buckets of the step
  // have been returned. All gradients of the bucket must have been marked. Throws CommError if the
  // reduction fails.
  std::optional<Range> WaitNext();

  // Exposed communication: the time that all WaitNext() of the last step spent waiting.
  double exposed_ms() const { return exposed_ms_; }
  std::span<const Bucket> buckets() const { return buckets_; }
  // Time from BeginStep() to MarkReady() of each parameter in the last step.
  std::span<const double> ready_ms() const { return ready_ms_; }
  std::span<const Range> parameters() const { return parameters_; }
  std::span<T> gradients() const { return gradients_; }

 private:
  using Clock = std::chrono::steady_clock;

  void LaunchReady();
  void ReduceBlocking(const Bucket& bucket, const Tag& tag);

  Communicator& communicator_;
  const std::span<T> gradients_;
  const std::vector<Range> parameters_;
  const Reduction reduction_;
  std::vector<Bucket> buckets_;
  uint64_t plan_ = 0;
  std::vector<int> bucket_of_;                     // by parameter
  std::vector<bool> is_ready_;                     // by parameter, in this step
  std::vector<int> num_unready_;                   // by bucket: parameters that are not ready
  std::vector<double> ready_ms_;                   // by parameter
  std::vector<std::unique_ptr<Pending>> pending_;  // launched buckets; null unless kSum
  std::vector<T> gathered_;                        // all ranks' data of a bucket, for Adasum
  size_t num_waited_ = 0;                          // buckets that WaitNext() has returned
  int64_t step_ = -1;
  Clock::time_point step_start_;
  double exposed_ms_ = 0;
};

using Reducer = BasicReducer<float>;

}  // namespace carole::collectives
