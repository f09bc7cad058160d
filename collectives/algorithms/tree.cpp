// All-reduce by halving and doubling: log2(size) exchanges each way instead of a ring's size-1.
// Rabenseifner 2004, "Optimization of collective reduction operations"; short messages skip the
// halving (recursive doubling).
//
// Members meet in pairs whose numbers differ in one bit, lowest bit first, so that every element is
// summed as a binary tree, ((0+1)+(2+3))+…: the same bits on all ranks, and for 2, 4, 8, … members
// the order of reduce.h. In each exchange of halving both keep one half of the range that they
// share and send the other half; then they send the sums back the same way. Beyond the largest
// power of two, the first members go in pairs: the odd one hands its range to its even neighbor
// and gets the sum in the end.
#include <algorithm>
#include <array>
#include <bit>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/reduce.h"

namespace carole::collectives {

namespace {

// Up to here the latency of an exchange outweighs its bytes.
constexpr size_t kWholeBytes = 8 << 10;

// Exchanges ranges with another rank, segment by segment; either may be empty, or both the same.
// With `add` what comes is added to `into` once the same segment of `from` has left, else it
// overwrites.
template <typename T>
void Swap(Exchange& x, int peer, std::span<const T> from, std::span<T> into, bool add) {
  const size_t most = x.segment_bytes / sizeof(T);
  T* const scratch = add ? x.Scratch<T>(std::min(most, into.size())) : nullptr;
  const auto segment = [most](auto range, size_t begin) {
    return begin < range.size() ? range.subspan(begin, std::min(most, range.size() - begin))
                                : range.first(0);
  };
  for (size_t begin = 0; begin < std::max(from.size(), into.size()); begin += most) {
    const std::span<T> target = segment(into, begin);
    const std::span<T> landing = add ? std::span<T>(scratch, target.size()) : target;
    std::array<Message, 2> messages;
    if (!landing.empty()) {
      messages[0] = Receive(*x.transport, peer, Channel::kData, std::as_writable_bytes(landing));
    }
    if (const auto part = segment(from, begin); !part.empty()) {
      messages[1] = Send(*x.transport, peer, Channel::kData, std::as_bytes(part));
    }
    Message::WaitAll(messages, *x.watch);
    if (add) AddTo(target.data(), landing.data(), target.size());
  }
}

// members.size() is a power of two.
template <typename T>
void SumWhole(Exchange& x, std::span<const int> members, size_t index, std::span<T> data) {
  for (size_t bit = 1; bit < members.size(); bit *= 2) {
    Swap<T>(x, members[index ^ bit], data, data, true);
  }
}

template <typename T>
void SumHalves(Exchange& x, std::span<const int> members, size_t index, std::span<T> data) {
  std::vector<std::span<T>> kept = {data};  // after each exchange
  const auto other_half = [&](size_t level) {
    const bool is_upper = kept[level + 1].data() != kept[level].data();
    const size_t length = kept[level].size() - kept[level + 1].size();
    return is_upper ? kept[level].first(length) : kept[level].last(length);
  };
  for (size_t bit = 1; bit < members.size(); bit *= 2) {
    const std::span<T> range = kept.back();
    const size_t lower = (range.size() + 1) / 2;
    kept.push_back((index & bit) != 0 ? range.subspan(lower) : range.first(lower));
    Swap<T>(x, members[index ^ bit], other_half(kept.size() - 2), kept.back(), true);
  }
  for (size_t level = kept.size() - 1; level-- > 0;) {
    Swap<T>(x, members[index ^ size_t{1} << level], kept[level + 1], other_half(level), false);
  }
}

}  // namespace

template <typename T>
void TreeSum(Exchange& x, const Members& all, std::span<T> data) {
  const std::span<const int> members = all.ranks;
  if (members.size() == 1 || data.empty()) return;
  const auto me = static_cast<size_t>(all.index);
  const size_t num_pairs = members.size() - std::bit_floor(members.size());
  const bool is_paired = me < 2 * num_pairs;
  if (is_paired && me % 2 == 1) {
    Swap<T>(x, members[me - 1], data, {}, false);
    Swap<T>(x, members[me - 1], {}, data, false);
    return;
  }
  if (is_paired) Swap<T>(x, members[me + 1], {}, data, true);
  std::vector<int> core;
  for (size_t i = 0; i < members.size(); i += i < 2 * num_pairs ? 2 : 1) core.push_back(members[i]);
  const size_t number = is_paired ? me / 2 : me - num_pairs;
  if (data.size_bytes() <= kWholeBytes) {
    SumWhole(x, core, number, data);
  } else {
    SumHalves(x, core, number, data);
  }
  if (is_paired) Swap<T>(x, members[me + 1], data, {}, false);
}

template <typename T>
void TreeAllReduce(Exchange& x, std::span<T> data) {
  TreeSum<T>(x, x.topology.AllRanks(), data);
}

template void TreeSum(Exchange&, const Members&, std::span<float>);
template void TreeSum(Exchange&, const Members&, std::span<double>);
template void TreeAllReduce(Exchange&, std::span<float>);
template void TreeAllReduce(Exchange&, std::span<double>);

}  // namespace carole::collectives
