// AllGather and Broadcast: through the staging areas among the ranks of one host, else by messages
// along the ring of all ranks.
#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/algorithms.h"

namespace carole::collectives {

namespace {

constexpr size_t kStaging = NodeGroup::kStagingBytes;

void SharedAllGather(Exchange& x, std::span<const std::byte> in, std::span<std::byte> out) {
  const auto staging = x.node->staging();
  for (size_t begin = 0; begin < in.size(); begin += kStaging) {
    const size_t length = std::min(kStaging, in.size() - begin);
    std::memcpy(staging[x.topology.local_rank], in.data() + begin, length);
    x.node->Sync(*x.watch);
    for (size_t r = 0; r < staging.size(); ++r) {
      std::memcpy(out.data() + r * in.size() + begin, staging[r], length);
    }
    x.node->Sync(*x.watch);
  }
}

void SharedBroadcast(Exchange& x, std::span<std::byte> data, int root) {
  std::byte* const staging = x.node->staging()[root];
  for (size_t begin = 0; begin < data.size(); begin += kStaging) {
    const auto piece = data.subspan(begin, std::min(kStaging, data.size() - begin));
    if (x.topology.rank == root) std::memcpy(staging, piece.data(), piece.size());
    x.node->Sync(*x.watch);
    if (x.topology.rank != root) std::memcpy(piece.data(), staging, piece.size());
    x.node->Sync(*x.watch);
  }
}

void RingAllGather(Exchange& x, std::span<const std::byte> in, std::span<std::byte> out) {
  const int rank = x.topology.rank;
  const int size = x.topology.size();
  const size_t bytes = in.size();
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

// Segment by segment along the chain root, root+1, …
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

}  // namespace

void AllGatherBytes(Exchange& x, std::span<const std::byte> in, std::span<std::byte> out) {
  if (in.empty()) return;
  return IsOneHost(x.topology) ? SharedAllGather(x, in, out) : RingAllGather(x, in, out);
}

void BroadcastBytes(Exchange& x, std::span<std::byte> data, int root) {
  return IsOneHost(x.topology) ? SharedBroadcast(x, data, root) : ChainBroadcast(x, data, root);
}

}  // namespace carole::collectives
