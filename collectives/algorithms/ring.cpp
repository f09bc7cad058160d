// All-reduce on a ring of `size` members. Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce
// algorithms".
//
// The range is cut into `size` chunks, one for each member. Chunk numbers wrap around. There are
// two phases of size-1 turns each:
//   - Reduce-scatter. In turn t, member i sends chunk i-t to the right, receives chunk i-t-1 from
//     the left and adds it to its own. After the last turn member i holds the sum of chunk i+1.
//   - All-gather. In turn size-1+t, member i sends chunk i+1-t, which it has complete, and
//     overwrites chunk i-t with what it receives.
//
//   Example: 3 members with ranges a, b, c of 3 chunks; a0 is chunk 0 of member 0, and 0->1 means
//   that member 0 sends to member 1.
//     turn 0, add:        0->1: a0         1->2: b1         2->0: c2
//     turn 1, add:        0->1: a2+c2      1->2: a0+b0      2->0: b1+c1
//     now member 0 has the sum of chunk 1, member 1 that of chunk 2, and member 2 that of chunk 0
//     turn 2, overwrite:  0->1: chunk 1    1->2: chunk 2    2->0: chunk 0
//     turn 3, overwrite:  0->1: chunk 0    1->2: chunk 1    2->0: chunk 2
//   Each member sends 4 chunks, that is 2(p-1)/p of its range for p = 3.
//
// Each chunk is summed along one path and then copied, so all members end with the same bits.
//
// A chunk travels as `lag` segments, so the plan has 2(size-1) * lag steps (PlanRing). A step sends
// one segment and receives another. A segment can be sent as soon as the same segment was received
// and added in the turn before, which is `lag` steps earlier.
//
// Four receives and four sends are in flight, so some segments travel while another is added.
// Received addends land in four buffers in scratch, used in turn: step i uses buffer i % 4. They
// cannot land in the range itself, because it holds this member's own addends. In the all-gather
// phase there is nothing to add, so segments land in the range directly.
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

// Runs the first num_steps steps of the plan. Sends go to rank `right`, receives come from `left`.
template <typename T>
void RunRing(CollectiveContext& context, int left, int right, const RingPlan& plan,
             size_t num_steps, std::span<T> data) {
  T* const scratch = context.Scratch<T>(kInFlight * plan.max_segment);
  // Returns the address at which the segment of step i is received.
  const auto landing = [&](size_t i) -> T* {
    const RingStep& step = plan.steps[i];
    return step.add ? scratch + i % kInFlight * plan.max_segment : data.data() + step.receive.begin;
  };

  std::array<Message, kInFlight> sends, receives;
  const auto send = [&](size_t i) {
    const Piece p = plan.steps[i].send;
    sends[i % kInFlight].Wait(*context.watchdog);  // the send of step i - kInFlight
    if (p.count == 0) return;
    sends[i % kInFlight] = Send(*context.transport, right, Channel::kData,
                                std::as_bytes(data.subspan(p.begin, p.count)));
  };
  const auto receive = [&](size_t i) {
    const size_t n = plan.steps[i].receive.count;
    if (n == 0) return;
    receives[i % kInFlight] = Receive(*context.transport, left, Channel::kData,
                                      std::as_writable_bytes(std::span<T>(landing(i), n)));
  };

  const auto start = Clock::now();
  size_t sent = 0;
  for (size_t i = 0; i < std::min(kInFlight, num_steps); ++i) receive(i);
  // 2(size-1) * lag iterations for an all-reduce, and half of them for a reduce-scatter.
  for (size_t i = 0; i < num_steps; ++i) {
    // Steps up to i + lag - 1 can be sent, because step i - 1 has been received. Sending ahead is
    // limited to kInFlight steps.
    const size_t may_send = std::min({num_steps, i + plan.lag, i + kInFlight});
    while (sent < may_send) send(sent++);
    receives[i % kInFlight].Wait(*context.watchdog);
    const RingStep& step = plan.steps[i];
    if (i == plan.lag - 1) {  // the first turn, which depends on the link from the left alone
      const size_t turns = num_steps / plan.lag;
      context.link_seconds += SecondsSince(start) * static_cast<double>(turns);
    }
    if (step.add) AddTo(data.data() + step.receive.begin, landing(i), step.receive.count);
    if (i + kInFlight < num_steps) receive(i + kInFlight);
  }
  for (Message& message : sends) message.Wait(*context.watchdog);
}

}  // namespace

template <typename T>
void RingSum(CollectiveContext& context, const Members& members, std::span<T> data) {
  const int size = static_cast<int>(members.ranks.size());
  if (size == 1 || data.empty()) return;
  if constexpr (std::is_same_v<T, float>) {
    if (context.wire == DType::kBF16) return Bf16Sum(context, members, data);
  }
  const RingPlan plan =
      PlanRing(data.size(), size, members.index, context.segment_bytes / sizeof(T));
  RunRing(context, members.left(), members.right(), plan, plan.steps.size(), data);
}

template <typename T>
void RingReduceScatter(CollectiveContext& context, const Members& members, std::span<T> in,
                       std::span<T> out) {
  const int size = static_cast<int>(members.ranks.size());
  // Runs the plan of the left neighbor: then the sum that ends up here is that of this rank's
  // piece.
  const int left = (members.index + size - 1) % size;
  const RingPlan plan = PlanRing(in.size(), size, left, context.segment_bytes / sizeof(T));
  RunRing(context, members.left(), members.right(), plan, plan.steps.size() / 2, in);
  std::ranges::copy(in.subspan(members.index * out.size(), out.size()), out.begin());
}

template <typename T>
void RingAllReduce(CollectiveContext& context, std::span<T> data) {
  RingSum(context, context.topology.AllRanks(), data);
}

template void RingSum(CollectiveContext&, const Members&, std::span<float>);
template void RingSum(CollectiveContext&, const Members&, std::span<double>);
template void RingReduceScatter(CollectiveContext&, const Members&, std::span<float>,
                                std::span<float>);
template void RingReduceScatter(CollectiveContext&, const Members&, std::span<double>,
                                std::span<double>);
template void RingAllReduce(CollectiveContext&, std::span<float>);
template void RingAllReduce(CollectiveContext&, std::span<double>);

}  // namespace carole::collectives
