// The Reducer sums gradients over ranks while backward still runs.
//
//   reducer.BeginStep(step);
//   … backward: reducer.MarkReady(p) as soon as the gradient of parameter p is final …
//   while (const auto range = reducer.WaitNext())
//     optimizer.Inspect(range->offset, range->offset + range->count);
//
// A bucket starts when all its gradients are ready and all earlier buckets have started: the same
// order on every rank, whatever the order of MarkReady(). Sums, no averages: the loss is scaled.
// With one rank nothing is sent and every bucket comes back at once. T is float or double.
//
// Other reductions than the sum do without overlap: kAdasum works in WaitNext(), kNone leaves every
// rank its own gradients.
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

template <typename T>
class BasicReducer {
 public:
  // gradients: the flat arena, best from communicator.AllocateArena; parameters: ranges in it, in
  // ready order. Both and the communicator outlive the reducer. All ranks call this together: the
  // plan is agreed on. Throws CommError when another rank has another plan.
  BasicReducer(Communicator& communicator, std::span<T> gradients, std::vector<Range> parameters,
               const BucketOptions& options = {}, Reduction reduction = Reduction::kSum);

  // Other buckets from the next step on; between steps, by all ranks together: the plan is agreed
  // on again. Throws InternalError unless they hold all parameters in order.
  void SetBuckets(std::vector<Bucket> buckets);

  // All buckets of the step before have been waited for.
  void BeginStep(int64_t step);

  // Gradient number `parameter` (in ready order) is final and stays untouched until WaitNext()
  // returned its bucket. Does not block. Each parameter once a step; from one thread at a time.
  void MarkReady(int parameter);

  // Elements of the next bucket, in order, once their sum is there; nullopt when all have been. All
  // gradients of it have been marked. Throws CommError.
  std::optional<Range> WaitNext();

  // After the step's last WaitNext(): so long they waited in all.
  double exposed_ms() const { return exposed_ms_; }
  std::span<const Bucket> buckets() const { return buckets_; }
  // When each gradient was final, in the last step, after its BeginStep().
  std::span<const double> ready_ms() const { return ready_ms_; }
  std::span<const Range> parameters() const { return parameters_; }
  std::span<T> gradients() const { return gradients_; }

 private:
  using Clock = std::chrono::steady_clock;

  void LaunchReady();
  void Reduce(const Bucket& bucket, const Tag& tag);

  Communicator& communicator_;
  const std::span<T> gradients_;
  const std::vector<Range> parameters_;
  const Reduction reduction_;
  std::vector<Bucket> buckets_;
  uint64_t plan_ = 0;
  std::vector<int> bucket_of_;                     // of each parameter
  std::vector<bool> is_ready_;                     // each parameter in this step
  std::vector<int> unready_;                       // parameters of each bucket
  std::vector<double> ready_ms_;                   // each parameter
  std::vector<std::unique_ptr<Pending>> pending_;  // of the launched buckets; null: not a sum
  std::vector<T> gathered_;                        // all ranks' data of a bucket, for Adasum
  size_t num_waited_ = 0;
  int64_t step_ = -1;
  Clock::time_point step_start_;
  double exposed_ms_ = 0;
};

using Reducer = BasicReducer<float>;

}  // namespace carole::collectives
