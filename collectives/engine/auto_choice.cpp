#include "collectives/engine/auto_choice.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include "src/core/check.h"
#include "src/core/log.h"

namespace carole::collectives {

namespace {

constexpr size_t kMaxBytes = 4 << 20;

// Returns the smallest size of those that share a choice with `bytes`.
size_t SizeClass(size_t bytes) { return std::bit_floor(std::min(bytes, kMaxBytes)); }

// Describes all that the fastest algorithm depends on, except for the message: how many ranks each
// host has, and how messages travel. Ranks of a machine without shared memory look like hosts, but
// have no network between them.
std::string DescribeHosts(const CollectiveContext& context) {
  std::string hosts;
  for (size_t i = 0, same = 0; i < context.topology.hosts.size(); i += same) {
    const size_t ranks = context.topology.hosts[i].size();
    for (same = 1; i + same < context.topology.hosts.size(); ++same) {
      if (context.topology.hosts[i + same].size() != ranks) break;
    }
    hosts += fmt::format("{} of {}, ", same, ranks);
  }
  return fmt::format("all_reduce, hosts and ranks: {}segments of {} bytes{}", hosts,
                     context.segment_bytes,
                     context.topology.shares_memory() ? "" : ", without shared memory");
}

// Returns the seconds of the fastest of a few sums of zeros.
template <typename T, typename Sum>
double MeasureSeconds(CollectiveContext& context, size_t count, Sum sum) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTries = 3;  // after a first one, which opens connections
  Buffer zeros(count * sizeof(T));
  const std::span<T> range(reinterpret_cast<T*>(zeros.data()), count);
  double fastest = std::numeric_limits<double>::max();
  for (int i = 0; i <= kTries; ++i) {
    const auto start = Clock::now();
    sum(context, range);
    const std::chrono::duration<double> time = Clock::now() - start;
    if (i > 0) fastest = std::min(fastest, time.count());
  }
  return fastest;
}

}  // namespace

AutoChoice::AutoChoice(const CollectiveContext& context, std::string path)
    : candidates_(AutoCandidates(context.topology)) {
  if (candidates_.size() > 1 && context.topology.rank == 0)
    cache_.emplace(std::move(path), DescribeHosts(context));
}

AllReduceAlgorithm AutoChoice::Find(DType dtype, size_t bytes) const {
  if (candidates_.size() == 1) return candidates_.front();
  const std::lock_guard lock(mutex_);
  const auto found = choices_.find({dtype, SizeClass(bytes)});
  return found == choices_.end() ? AllReduceAlgorithm::kAuto : found->second;
}

AllReduceAlgorithm AutoChoice::Choose(CollectiveContext& context, DType dtype, size_t bytes) {
  const std::string task = fmt::format("{} bytes of {}", SizeClass(bytes), Name(dtype));
  AllReduceAlgorithm choice = FindInCache(task);
  BroadcastBytes(context, std::as_writable_bytes(std::span(&choice, 1)), 0);
  if (choice == AllReduceAlgorithm::kAuto) choice = Measure(context, dtype, bytes, task);
  const std::lock_guard lock(mutex_);
  return choices_[{dtype, SizeClass(bytes)}] = choice;
}

// Returns kAuto if the file has no choice, or one that is no longer a candidate.
AllReduceAlgorithm AutoChoice::FindInCache(const std::string& task) const {
  const std::optional<std::string> name = cache_ ? cache_->Find(task) : std::nullopt;
  for (AllReduceAlgorithm candidate : candidates_) {
    if (name == Name(candidate)) return candidate;
  }
  return AllReduceAlgorithm::kAuto;
}

AllReduceAlgorithm AutoChoice::Measure(CollectiveContext& context, DType dtype, size_t bytes,
                                       const std::string& task) {
  const size_t measured_bytes = std::min(bytes, kMaxBytes);
  context.local_addresses.clear();
  std::vector<double> mine;
  for (AllReduceAlgorithm candidate : candidates_) {
    const AllReduceEntry& row = RowOf(candidate);
    mine.push_back(
        dtype == DType::kF64
            ? MeasureSeconds<double>(context, measured_bytes / sizeof(double), row.sum_f64)
            : MeasureSeconds<float>(context, measured_bytes / sizeof(float), row.sum_f32));
  }
  std::vector<double> all(mine.size() * context.topology.size());
  AllGatherBytes(context, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::vector<double> slowest(mine.size());
  for (size_t i = 0; i < all.size(); ++i) {
    slowest[i % mine.size()] = std::max(slowest[i % mine.size()], all[i]);
  }
  const size_t best = std::ranges::min_element(slowest) - slowest.begin();
  const AllReduceAlgorithm choice = candidates_[best];
  if (cache_) {
    LogInfo("comm", "all_reduce of {} bytes of {}: {}, {:.0f} us here", measured_bytes, Name(dtype),
            Name(choice), slowest[best] * 1e6);
    cache_->Add(task, std::string(Name(choice)));
  }
  return choice;
}

}  // namespace carole::collectives
