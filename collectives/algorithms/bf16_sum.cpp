// All-reduce of fp32 that travels as bf16, which halves the bytes of a ring.
//
// As on a ring, each member owns one chunk, and there are two phases of size-1 turns. But addends
// travel straight to the owner of their chunk, instead of being passed on around the ring:
//   - Reduce-scatter. In turn t, a member sends chunk index+t to its owner, member index+t. It
//     receives an addend for its own chunk from member index-t and adds it in fp32.
//   - All-gather. The owners send their sums to all members, in the same order of turns.
//
// So every addend is rounded once, and the sum is rounded once more, whatever the number of
// members. On a ring, partial sums would be rounded in every turn. Each chunk is summed and rounded
// by its owner, so all members end with the same bits; the owner keeps the rounded sum too.
//
// A chunk travels as segments. Four are in flight in each direction.
#include <algorithm>
#include <array>
#include <chrono>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/reduce.h"
#include "src/core/divide_up.h"

namespace carole::collectives {

namespace {

using Clock = std::chrono::steady_clock;

// Sends one segment to member `to` and receives one from member `from`.
struct Step {
  Piece send;
  Piece receive;
  int to = 0;
  int from = 0;
};

// Plans one phase. In the reduce-scatter phase (`scatter`) a member sends the chunk that the
// receiver owns and receives its own. In the all-gather phase it sends its own and receives the
// sender's.
std::vector<Step> Plan(size_t count, int size, int index, size_t segment_elements, bool scatter) {
  const size_t longest = SplitEvenly(count, size, 0).count;
  const size_t num_segments = DivideUp(longest, segment_elements);
  const auto segment_of = [&](int chunk, size_t s) {
    const Piece c = SplitEvenly(count, size, chunk);
    const Piece part = SplitEvenly(c.count, num_segments, s);
    return Piece{c.begin + part.begin, part.count};
  };
  std::vector<Step> steps;
  for (int turn = 1; turn < size; ++turn) {
    const int to = (index + turn) % size;
    const int from = (index + size - turn) % size;
    for (size_t s = 0; s < num_segments; ++s) {
      steps.push_back({.send = segment_of(scatter ? to : index, s),
                       .receive = segment_of(scatter ? index : from, s),
                       .to = to,
                       .from = from});
    }
  }
  return steps;
}

// Runs one phase. Received segments are added to the range if `add` is set, else they overwrite it.
// The steps do not depend on each other.
void Run(CollectiveContext& context, std::span<const int> members, std::span<const Step> steps,
         std::span<float> data, bool add) {
  size_t longest = 0;
  for (const Step& s : steps) longest = std::max({longest, s.send.count, s.receive.count});
  uint16_t* const scratch = context.Scratch<uint16_t>(2 * kInFlight * longest);
  const auto outgoing = [&](size_t i) { return scratch + i % kInFlight * longest; };
  const auto landing = [&](size_t i) { return scratch + (kInFlight + i % kInFlight) * longest; };
  std::array<Message, kInFlight> sends, receives;
  const auto start = [&](size_t i) {
    const Step& s = steps[i];
    if (s.receive.count > 0) {
      receives[i % kInFlight] =
          Receive(*context.transport, members[s.from], Channel::kData,
                  std::as_writable_bytes(std::span(landing(i), s.receive.count)));
    }
    sends[i % kInFlight].Wait(*context.watchdog);  // the previous send from this buffer
    if (s.send.count == 0) return;
    RoundToBf16(&data[s.send.begin], outgoing(i), s.send.count);
    sends[i % kInFlight] = Send(*context.transport, members[s.to], Channel::kData,
                                std::as_bytes(std::span(outgoing(i), s.send.count)));
  };
  for (size_t i = 0; i < std::min(kInFlight, steps.size()); ++i) start(i);
  for (size_t i = 0; i < steps.size(); ++i) {
    receives[i % kInFlight].Wait(*context.watchdog);
    const Piece p = steps[i].receive;
    if (p.count > 0 && add) AddBf16To(&data[p.begin], landing(i), p.count);
    if (p.count > 0 && !add) WidenBf16(landing(i), &data[p.begin], p.count);
    if (i + kInFlight < steps.size()) start(i + kInFlight);
  }
  for (Message& message : sends) message.Wait(*context.watchdog);
}

}  // namespace

void Bf16Sum(CollectiveContext& context, const Members& members, std::span<float> data) {
  const int size = static_cast<int>(members.ranks.size());
  const size_t segment = context.segment_bytes / sizeof(uint16_t);
  const auto begin = Clock::now();
  Run(context, members.ranks, Plan(data.size(), size, members.index, segment, true), data, true);
  const Piece mine = SplitEvenly(data.size(), size, members.index);
  context.link_seconds += 2 * std::chrono::duration<double>(Clock::now() - begin).count();
  if (mine.count > 0) {  // this member keeps the rounded sum that the others get
    uint16_t* const rounded = context.Scratch<uint16_t>(mine.count);
    RoundToBf16(&data[mine.begin], rounded, mine.count);
    WidenBf16(rounded, &data[mine.begin], mine.count);
  }
  Run(context, members.ranks, Plan(data.size(), size, members.index, segment, false), data, false);
}

}  // namespace carole::collectives
