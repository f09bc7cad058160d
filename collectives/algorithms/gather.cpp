// AllGather and Broadcast on two levels: messages among hosts, and the shared staging areas among
// the ranks of a host. Shift has one level.
#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/algorithms/algorithms.h"

namespace carole::collectives {

namespace {

constexpr size_t kStaging = NodeGroup::kStagingBytes;

// Shares one piece of `bytes` bytes of each local rank with all local ranks. pieces[l] is where the
// piece of local rank l belongs in this rank's memory. This rank's own piece is already there.
void ShareAmongLocalRanks(CollectiveContext& context, std::span<std::byte* const> pieces,
                          size_t bytes) {
  if (pieces.size() == 1) return;
  const auto staging = context.node->staging();
  const auto mine = static_cast<size_t>(context.topology.local_rank);
  for (size_t begin = 0; begin < bytes; begin += kStaging) {
    const size_t length = std::min(kStaging, bytes - begin);
    std::memcpy(staging[mine], pieces[mine] + begin, length);
    context.node->Barrier(*context.watchdog);
    for (size_t l = 0; l < pieces.size(); ++l) {
      if (l != mine) std::memcpy(pieces[l] + begin, staging[l], length);
    }
    context.node->Barrier(*context.watchdog);
  }
}

// Copies the data of local rank `root` to all local ranks.
void BroadcastAmongLocalRanks(CollectiveContext& context, std::span<std::byte> data, int root) {
  if (context.topology.local_size() == 1) return;
  std::byte* const staging = context.node->staging()[root];
  const bool is_root = context.topology.local_rank == root;
  for (size_t begin = 0; begin < data.size(); begin += kStaging) {
    const auto piece = data.subspan(begin, std::min(kStaging, data.size() - begin));
    if (is_root) std::memcpy(staging, piece.data(), piece.size());
    context.node->Barrier(*context.watchdog);
    if (!is_root) std::memcpy(piece.data(), staging, piece.size());
    context.node->Barrier(*context.watchdog);
  }
}

// All-gather on a ring of `members`. The piece of rank r belongs at `all` + r * bytes. In each of
// size-1 turns, a member passes the piece that it received in the turn before to the right.
void RingGather(CollectiveContext& context, const Members& members, std::byte* all, size_t bytes) {
  const auto& ranks = members.ranks;
  const size_t size = ranks.size();
  const size_t index = members.index;
  const auto piece = [&](size_t turn) {  // the piece that this rank sends in that turn
    return std::span(all + ranks[(index + size - turn) % size] * bytes, bytes);
  };
  for (size_t turn = 0; turn + 1 < size; ++turn) {
    std::array<Message, 2> messages = {
        Receive(*context.transport, members.left(), Channel::kData, piece(turn + 1)),
        Send(*context.transport, members.right(), Channel::kData, piece(turn))};
    Message::WaitAll(messages, *context.watchdog);
  }
}

}  // namespace

void AllGatherBytes(CollectiveContext& context, std::span<const std::byte> in,
                    std::span<std::byte> out) {
  if (in.empty()) return;
  const Topology& t = context.topology;
  std::memcpy(out.data() + t.rank * in.size(), in.data(), in.size());
  if (!t.has_even_hosts()) return RingGather(context, t.AllRanks(), out.data(), in.size());
  RingGather(context, t.RailMembers(), out.data(), in.size());
  for (const std::vector<int>& ranks : t.hosts) {
    std::vector<std::byte*> pieces;
    for (int rank : ranks) pieces.push_back(out.data() + rank * in.size());
    ShareAmongLocalRanks(context, pieces, in.size());
  }
}

// The ranks of a host exchange messages, too: each pair of neighbors has data of its own, so there
// is nothing to share.
void ShiftBytes(CollectiveContext& context, std::span<const std::byte> out,
                std::span<std::byte> in) {
  const Members ring = context.topology.AllRanks();
  for (size_t begin = 0; begin < in.size(); begin += context.segment_bytes) {
    const size_t length = std::min(context.segment_bytes, in.size() - begin);
    std::array<Message, 2> messages = {
        Receive(*context.transport, ring.left(), Channel::kData, in.subspan(begin, length)),
        Send(*context.transport, ring.right(), Channel::kData, out.subspan(begin, length))};
    Message::WaitAll(messages, *context.watchdog);
  }
}

// The data travels segment by segment along a chain of hosts that begins with the root's host. One
// rank of each host, the leader, receives a segment, sends it on, and shares it with its host.
void BroadcastBytes(CollectiveContext& context, std::span<std::byte> data, int root) {
  const Topology& t = context.topology;
  const int num_hosts = static_cast<int>(t.hosts.size());
  const int first = t.host_of[root];
  const auto leader = [&](int host) { return host == first ? root : t.hosts[host].front(); };
  const int before = (t.host() + num_hosts - 1) % num_hosts;
  const int next = (t.host() + 1) % num_hosts;
  const bool is_leader = t.rank == leader(t.host());
  const int local_leader = static_cast<int>(std::ranges::find(t.local_ranks(), leader(t.host())) -
                                            t.local_ranks().begin());
  Message sent;
  for (size_t begin = 0; begin < data.size(); begin += context.segment_bytes) {
    const auto segment = data.subspan(begin, std::min(context.segment_bytes, data.size() - begin));
    if (is_leader && t.host() != first)
      Receive(*context.transport, leader(before), Channel::kData, segment).Wait(*context.watchdog);
    if (is_leader && next != first) {
      sent.Wait(*context.watchdog);  // the previous segment, which left while this one came
      sent = Send(*context.transport, leader(next), Channel::kData, segment);
    }
    BroadcastAmongLocalRanks(context, segment, local_leader);
  }
  sent.Wait(*context.watchdog);
}

}  // namespace carole::collectives
