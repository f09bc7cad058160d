// All-reduce on a ring of `size` members. Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce
// algorithms".
//
// The range is cut into `size` chunks, one for each member. In turn t of the first size-1 turns a
// member sends chunk index-t to the right and adds what comes from the left to chunk index-t-1;
// then member i holds the sum of chunk i+1. In the next size-1 turns the sums go round the same way
// and overwrite. Each chunk is summed along one path and then copied, so all members end with the
// same bits.
//
// A chunk travels as segments. A segment is sent as soon as it was received in the turn before;
// four are in flight each way, so that one travels while the other is added. Received addends land
// in four parts of scratch.
#include <algorithm>
#include <array>
#include <chrono>
#include <type_traits>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/reduce.h"
#include "src/core/stopwatch.h"

namespace carole::collectives {

namespace {

using Clock = std::chrono::steady_clock;

// The first num_steps steps of the plan. Messages go to the rank `right` and come from `left`.
template <typename T>
void RunRing(Exchange& x, int left, int right, const RingPlan& plan, size_t num_steps,
             std::span<T> data) {
  T* const scratch = x.Scratch<T>(kInFlight * plan.max_segment);
  const auto landing = [&](size_t i) -> T* {
    const RingStep& step = plan.steps[i];
    return step.add ? scratch + i % kInFlight * plan.max_segment : data.data() + step.receive.begin;
  };

  std::array<Message, kInFlight> sends, receives;
  const auto send = [&](size_t i) {
    const Piece p = plan.steps[i].send;
    sends[i % kInFlight].Wait(*x.watch);  // the send so many steps before
    if (p.count == 0) return;
    sends[i % kInFlight] =
        Send(*x.transport, right, Channel::kData, std::as_bytes(data.subspan(p.begin, p.count)));
  };
  const auto receive = [&](size_t i) {
    const size_t n = plan.steps[i].receive.count;
    if (n == 0) return;
    receives[i % kInFlight] = Receive(*x.transport, left, Channel::kData,
                                      std::as_writable_bytes(std::span<T>(landing(i), n)));
  };

  const auto start = Clock::now();
  size_t sent = 0;
  for (size_t i = 0; i < std::min(kInFlight, num_steps); ++i) receive(i);
  for (size_t i = 0; i < num_steps; ++i) {
    // Step i needs i - lag received; one step further may already leave while this one is awaited.
    const size_t may_send = std::min({num_steps, i + plan.lag, i + kInFlight});
    while (sent < may_send) send(sent++);
    receives[i % kInFlight].Wait(*x.watch);
    const RingStep& step = plan.steps[i];
    if (i == plan.lag - 1) {
      const size_t rounds = num_steps / plan.lag;
      x.link_seconds += SecondsSince(start) * static_cast<double>(rounds);
    }
    if (step.add) AddTo(data.data() + step.receive.begin, landing(i), step.receive.count);
    if (i + kInFlight < num_steps) receive(i + kInFlight);
  }
  for (Message& message : sends) message.Wait(*x.watch);
}

}  // namespace

template <typename T>
void RingSum(Exchange& x, const Members& members, std::span<T> data) {
  const int size = static_cast<int>(members.ranks.size());
  if (size == 1 || data.empty()) return;
  if constexpr (std::is_same_v<T, float>) {
    if (x.wire == DType::kBF16) return Bf16Sum(x, members, data);
  }
  const RingPlan plan = PlanRing(data.size(), size, members.index, x.segment_bytes / sizeof(T));
  RunRing(x, members.left(), members.right(), plan, plan.steps.size(), data);
}

template <typename T>
void RingReduceScatter(Exchange& x, const Members& members, std::span<T> in, std::span<T> out) {
  const int size = static_cast<int>(members.ranks.size());
  // As the left neighbor would do it: then the sum that ends here is that of this rank's piece.
  const int left = (members.index + size - 1) % size;
  const RingPlan plan = PlanRing(in.size(), size, left, x.segment_bytes / sizeof(T));
  RunRing(x, members.left(), members.right(), plan, plan.steps.size() / 2, in);
  std::ranges::copy(in.subspan(members.index * out.size(), out.size()), out.begin());
}

template <typename T>
void RingAllReduce(Exchange& x, std::span<T> data) {
  RingSum(x, x.topology.AllRanks(), data);
}

template void RingSum(Exchange&, const Members&, std::span<float>);
template void RingSum(Exchange&, const Members&, std::span<double>);
template void RingReduceScatter(Exchange&, const Members&, std::span<float>, std::span<float>);
template void RingReduceScatter(Exchange&, const Members&, std::span<double>, std::span<double>);
template void RingAllReduce(Exchange&, std::span<float>);
template void RingAllReduce(Exchange&, std::span<double>);

}  // namespace carole::collectives
