// All-reduce by recursive halving and doubling. Rabenseifner 2004, "Optimization of collective
// reduction operations". It takes 2 log2(size) exchanges, where a ring takes 2(size-1) turns.
//
// In exchange k (k = 0, 1, …), members meet whose numbers differ in bit k only. There are two
// phases:
//   - Halving. Both members of a pair hold the same part of the range. One keeps the lower half of
//     it and the other the upper half; each sends the other half and adds what it receives. Then
//     each holds 1/size of the range, summed over all members.
//   - Doubling. The same pairs meet in the opposite order and send each other the sums they have.
//
//   Example: 4 members and a range of 8 elements. Columns are members; "0-3" are elements.
//     at first       0-7   0-7   0-7   0-7
//     pairs 01, 23   0-3   4-7   0-3   4-7    each sends 4 elements
//     pairs 02, 13   0-1   4-5   2-3   6-7    each sends 2; now summed over all 4 members
//     pairs 02, 13   0-3   4-7   0-3   4-7    each sends 2 sums
//     pairs 01, 23   0-7   0-7   0-7   0-7    each sends 4 sums
//
// Ranges of at most kWholeBytes skip the halving: members exchange the whole range (recursive
// doubling), which takes half as many messages.
//
// Every element is summed as a binary tree, ((0+1)+(2+3))+…, so all ranks end with the same bits.
// For 2, 4, 8, … members the order is that of reduce.h.
//
// If the number of members is not a power of two, some of the first members go in pairs. The odd
// one of a pair sends its range to the even one, sits out, and gets the sum in the end.
//
// Exchanges are cut into segments. Received addends land in a scratch buffer of one segment,
// because the range itself holds this member's addends.
#include <algorithm>
#include <array>
#include <bit>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/reduce.h"

namespace carole::collectives {

namespace {

// Up to this size the latency of an exchange outweighs the time for its bytes.
constexpr size_t kWholeBytes = 8 << 10;

// Sends `from` to rank `peer` and receives `into` from it, segment by segment. Either may be empty,
// or both may be the same range. With `add`, a received segment is added to `into` once the same
// segment of `from` has been sent; else it overwrites `into`.
template <typename T>
void ExchangeRanges(CollectiveContext& context, int peer, std::span<const T> from,
                    std::span<T> into, bool add) {
  const size_t most = context.segment_bytes / sizeof(T);
  T* const scratch = add ? context.Scratch<T>(std::min(most, into.size())) : nullptr;
  const auto segment = [most](auto range, size_t begin) {
    return begin < range.size() ? range.subspan(begin, std::min(most, range.size() - begin))
                                : range.first(0);
  };
  for (size_t begin = 0; begin < std::max(from.size(), into.size()); begin += most) {
    const std::span<T> target = segment(into, begin);
    const std::span<T> landing = add ? std::span<T>(scratch, target.size()) : target;
    std::array<Message, 2> messages;
    if (!landing.empty()) {
      messages[0] =
          Receive(*context.transport, peer, Channel::kData, std::as_writable_bytes(landing));
    }
    if (const auto part = segment(from, begin); !part.empty()) {
      messages[1] = Send(*context.transport, peer, Channel::kData, std::as_bytes(part));
    }
    Message::WaitAll(messages, *context.watchdog);
    if (add) AddTo(target.data(), landing.data(), target.size());
  }
}

// Sums by exchanging the whole range. members.size() must be a power of two.
template <typename T>
void SumWhole(CollectiveContext& context, std::span<const int> members, size_t index,
              std::span<T> data) {
  for (size_t bit = 1; bit < members.size(); bit *= 2) {
    ExchangeRanges<T>(context, members[index ^ bit], data, data, true);
  }
}

// Sums by halving and doubling. members.size() must be a power of two.
template <typename T>
void SumHalves(CollectiveContext& context, std::span<const int> members, size_t index,
               std::span<T> data) {
  std::vector<std::span<T>> kept = {data};  // the part that this member keeps after each exchange
  const auto other_half = [&](size_t level) {
    const bool is_upper = kept[level + 1].data() != kept[level].data();
    const size_t length = kept[level].size() - kept[level + 1].size();
    return is_upper ? kept[level].first(length) : kept[level].last(length);
  };
  for (size_t bit = 1; bit < members.size(); bit *= 2) {
    const std::span<T> range = kept.back();
    const size_t lower = (range.size() + 1) / 2;
    kept.push_back((index & bit) != 0 ? range.subspan(lower) : range.first(lower));
    ExchangeRanges<T>(context, members[index ^ bit], other_half(kept.size() - 2), kept.back(),
                      true);
  }
  for (size_t level = kept.size() - 1; level-- > 0;) {
    ExchangeRanges<T>(context, members[index ^ size_t{1} << level], kept[level + 1],
                      other_half(level), false);
  }
}

}  // namespace

template <typename T>
void TreeSum(CollectiveContext& context, const Members& all, std::span<T> data) {
  const std::span<const int> members = all.ranks;
  if (members.size() == 1 || data.empty()) return;
  const auto me = static_cast<size_t>(all.index);
  const size_t num_pairs = members.size() - std::bit_floor(members.size());
  const bool is_paired = me < 2 * num_pairs;
  if (is_paired && me % 2 == 1) {
    ExchangeRanges<T>(context, members[me - 1], data, {}, false);
    ExchangeRanges<T>(context, members[me - 1], {}, data, false);
    return;
  }
  if (is_paired) ExchangeRanges<T>(context, members[me + 1], {}, data, true);
  std::vector<int> active;
  for (size_t i = 0; i < members.size(); i += i < 2 * num_pairs ? 2 : 1)
    active.push_back(members[i]);
  const size_t number = is_paired ? me / 2 : me - num_pairs;
  if (data.size_bytes() <= kWholeBytes) {
    SumWhole(context, active, number, data);
  } else {
    SumHalves(context, active, number, data);
  }
  if (is_paired) ExchangeRanges<T>(context, members[me + 1], data, {}, false);
}

template <typename T>
void TreeAllReduce(CollectiveContext& context, std::span<T> data) {
  TreeSum<T>(context, context.topology.AllRanks(), data);
}

template void TreeSum(CollectiveContext&, const Members&, std::span<float>);
template void TreeSum(CollectiveContext&, const Members&, std::span<double>);
template void TreeAllReduce(CollectiveContext&, std::span<float>);
template void TreeAllReduce(CollectiveContext&, std::span<double>);

}  // namespace carole::collectives
