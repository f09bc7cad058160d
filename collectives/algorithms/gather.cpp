// AllGather and Broadcast in two levels: by messages among hosts, by way of the staging areas among
// the ranks of a host.
#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/algorithms/algorithms.h"

namespace carole::collectives {

namespace {

constexpr size_t kStaging = NodeGroup::kStagingBytes;

// Each local rank's piece to its neighbors. pieces[l]: where that of local rank l belongs in this
// rank's memory; its own is there.
void ShareWithNeighbors(Exchange& x, std::span<std::byte* const> pieces, size_t bytes) {
  if (pieces.size() == 1) return;
  const auto staging = x.node->staging();
  const auto mine = static_cast<size_t>(x.topology.local_rank);
  for (size_t begin = 0; begin < bytes; begin += kStaging) {
    const size_t length = std::min(kStaging, bytes - begin);
    std::memcpy(staging[mine], pieces[mine] + begin, length);
    x.node->Sync(*x.watch);
    for (size_t l = 0; l < pieces.size(); ++l) {
      if (l != mine) std::memcpy(pieces[l] + begin, staging[l], length);
    }
    x.node->Sync(*x.watch);
  }
}

// The local rank's data to its neighbors.
void TellNeighbors(Exchange& x, std::span<std::byte> data, int speaker) {
  if (x.topology.local_size() == 1) return;
  std::byte* const staging = x.node->staging()[speaker];
  const bool speaks = x.topology.local_rank == speaker;
  for (size_t begin = 0; begin < data.size(); begin += kStaging) {
    const auto piece = data.subspan(begin, std::min(kStaging, data.size() - begin));
    if (speaks) std::memcpy(staging, piece.data(), piece.size());
    x.node->Sync(*x.watch);
    if (!speaks) std::memcpy(piece.data(), staging, piece.size());
    x.node->Sync(*x.watch);
  }
}

// The members' pieces go round their ring; rank r's belongs at `all` + r * bytes.
void RingGather(Exchange& x, const Members& members, std::byte* all, size_t bytes) {
  const auto& ranks = members.ranks;
  const size_t size = ranks.size();
  const size_t index = members.index;
  const auto piece = [&](size_t turn) {  // the one that this rank has after so many turns
    return std::span(all + ranks[(index + size - turn) % size] * bytes, bytes);
  };
  for (size_t turn = 0; turn + 1 < size; ++turn) {
    std::array<Message, 2> messages = {
        Receive(*x.transport, members.left(), Channel::kData, piece(turn + 1)),
        Send(*x.transport, members.right(), Channel::kData, piece(turn))};
    Message::WaitAll(messages, *x.watch);
  }
}

}  // namespace

void AllGatherBytes(Exchange& x, std::span<const std::byte> in, std::span<std::byte> out) {
  if (in.empty()) return;
  const Topology& t = x.topology;
  std::memcpy(out.data() + t.rank * in.size(), in.data(), in.size());
  if (!t.has_even_hosts()) return RingGather(x, t.AllRanks(), out.data(), in.size());
  RingGather(x, t.Counterparts(), out.data(), in.size());
  for (const std::vector<int>& ranks : t.hosts) {
    std::vector<std::byte*> pieces;
    for (int rank : ranks) pieces.push_back(out.data() + rank * in.size());
    ShareWithNeighbors(x, pieces, in.size());
  }
}

// Segment by segment along the chain of hosts that begins with the root's. One rank of each host
// receives it, sends it on and tells its neighbors.
void BroadcastBytes(Exchange& x, std::span<std::byte> data, int root) {
  const Topology& t = x.topology;
  const int num_hosts = static_cast<int>(t.hosts.size());
  const int first = t.host_of[root];
  const auto speaker = [&](int host) { return host == first ? root : t.hosts[host].front(); };
  const int before = (t.host() + num_hosts - 1) % num_hosts;
  const int next = (t.host() + 1) % num_hosts;
  const bool speaks = t.rank == speaker(t.host());
  const int local_speaker =
      static_cast<int>(std::ranges::find(t.neighbors(), speaker(t.host())) - t.neighbors().begin());
  Message sent;
  for (size_t begin = 0; begin < data.size(); begin += x.segment_bytes) {
    const auto segment = data.subspan(begin, std::min(x.segment_bytes, data.size() - begin));
    if (speaks && t.host() != first)
      Receive(*x.transport, speaker(before), Channel::kData, segment).Wait(*x.watch);
    if (speaks && next != first) {
      sent.Wait(*x.watch);  // of the segment before: it left while this one came
      sent = Send(*x.transport, speaker(next), Channel::kData, segment);
    }
    TellNeighbors(x, segment, local_speaker);
  }
  sent.Wait(*x.watch);
}

}  // namespace carole::collectives
