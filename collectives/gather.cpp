// AllGather and Broadcast by messages alone: for weights at the start and small facts, not for
// every step.
#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/algorithms.h"

namespace carole::collectives {

void RingAllGather(Exchange& x, std::span<const std::byte> in, std::span<std::byte> out) {
  const int rank = x.topology.rank;
  const int size = x.topology.size();
  const size_t bytes = in.size();
  if (bytes == 0) return;
  const auto piece = [&](int turn) {  // the one that this rank has after so many turns
    return out.subspan((rank - turn + size) % size * bytes, bytes);
  };
  std::memcpy(piece(0).data(), in.data(), bytes);
  for (int turn = 0; turn < size - 1; ++turn) {
    std::array<Message, 2> messages = {
        Receive(*x.transport, (rank + size - 1) % size, Channel::kData, piece(turn + 1)),
        Send(*x.transport, (rank + 1) % size, Channel::kData, piece(turn))};
    Message::WaitAll(messages, *x.watch);
  }
}

void ChainBroadcast(Exchange& x, std::span<std::byte> data, int root) {
  const int rank = x.topology.rank;
  const int size = x.topology.size();
  const bool is_first = rank == root;
  const bool is_last = (rank + 1) % size == root;
  const auto segment = [&](size_t begin) {
    return data.subspan(begin, std::min(x.segment_bytes, data.size() - begin));
  };
  Message sent;
  for (size_t begin = 0; begin < data.size(); begin += x.segment_bytes) {
    if (!is_first) {
      Receive(*x.transport, (rank + size - 1) % size, Channel::kData, segment(begin))
          .Wait(*x.watch);
    }
    if (is_last) continue;
    sent.Wait(*x.watch);  // of the segment before: it left while this one came
    sent = Send(*x.transport, (rank + 1) % size, Channel::kData, segment(begin));
  }
  sent.Wait(*x.watch);
}

}  // namespace carole::collectives
