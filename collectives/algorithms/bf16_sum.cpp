// All-reduce of fp32 that travels as bf16: half of a ring's bytes.
//
// Like a ring, each member owns one chunk. But addends go straight to the owner: in turn t of the
// first size-1 turns a member sends chunk index+t to its owner and adds what member index-t sends
// to its own chunk, in fp32. So every addend is rounded once, whatever the number of members, and
// the sum once more, where on a ring partial sums would be rounded in each turn. Then the owners
// send their sums to all the same way. Each chunk is summed in one place and rounded there, so all
// members end with the same bits.
//
// A chunk travels as segments, four of them in flight each way.
#include <algorithm>
#include <array>
#include <chrono>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/reduce.h"
#include "src/core/divide_up.h"

namespace carole::collectives {

namespace {

using Clock = std::chrono::steady_clock;

// One segment each way: to member `to`, from member `from`.
struct Step {
  Piece send;
  Piece receive;
  int to = 0;
  int from = 0;
};

// Turns 1 to size-1. With `scatter` the owner's chunk is sent and one's own received, else the
// other way round.
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

// `add`: to what is there, else overwrite. The steps do not depend on each other.
void Run(Exchange& x, std::span<const int> members, std::span<const Step> steps,
         std::span<float> data, bool add) {
  size_t longest = 0;
  for (const Step& s : steps) longest = std::max({longest, s.send.count, s.receive.count});
  uint16_t* const scratch = x.Scratch<uint16_t>(2 * kInFlight * longest);
  const auto outgoing = [&](size_t i) { return scratch + i % kInFlight * longest; };
  const auto landing = [&](size_t i) { return scratch + (kInFlight + i % kInFlight) * longest; };
  std::array<Message, kInFlight> sends, receives;
  const auto start = [&](size_t i) {
    const Step& s = steps[i];
    if (s.receive.count > 0) {
      receives[i % kInFlight] =
          Receive(*x.transport, members[s.from], Channel::kData,
                  std::as_writable_bytes(std::span(landing(i), s.receive.count)));
    }
    sends[i % kInFlight].Wait(*x.watch);  // the one before from this buffer
    if (s.send.count == 0) return;
    RoundToBf16(&data[s.send.begin], outgoing(i), s.send.count);
    sends[i % kInFlight] = Send(*x.transport, members[s.to], Channel::kData,
                                std::as_bytes(std::span(outgoing(i), s.send.count)));
  };
  for (size_t i = 0; i < std::min(kInFlight, steps.size()); ++i) start(i);
  for (size_t i = 0; i < steps.size(); ++i) {
    receives[i % kInFlight].Wait(*x.watch);
    const Piece p = steps[i].receive;
    if (p.count > 0 && add) AddBf16To(&data[p.begin], landing(i), p.count);
    if (p.count > 0 && !add) WidenBf16(landing(i), &data[p.begin], p.count);
    if (i + kInFlight < steps.size()) start(i + kInFlight);
  }
  for (Message& message : sends) message.Wait(*x.watch);
}

}  // namespace

void Bf16Sum(Exchange& x, const Members& members, std::span<float> data) {
  const int size = static_cast<int>(members.ranks.size());
  const size_t segment = x.segment_bytes / sizeof(uint16_t);
  const auto begin = Clock::now();
  Run(x, members.ranks, Plan(data.size(), size, members.index, segment, true), data, true);
  const Piece mine = SplitEvenly(data.size(), size, members.index);
  x.link_seconds += 2 * std::chrono::duration<double>(Clock::now() - begin).count();
  if (mine.count > 0) {  // keeps what the others get
    uint16_t* const rounded = x.Scratch<uint16_t>(mine.count);
    RoundToBf16(&data[mine.begin], rounded, mine.count);
    WidenBf16(rounded, &data[mine.begin], mine.count);
  }
  Run(x, members.ranks, Plan(data.size(), size, members.index, segment, false), data, false);
}

}  // namespace carole::collectives
