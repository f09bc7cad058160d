#include "collectives/engine/header_exchange.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <limits>

namespace carole::collectives {

namespace {

using Clock = std::chrono::steady_clock;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

void Post(Exchange& x, int peer, int64_t value) {
  Send(*x.transport, peer, Channel::kContract, std::as_bytes(std::span(&value, 1))).Wait(*x.watch);
}

int64_t Await(Exchange& x, int peer) {
  int64_t value = 0;
  Receive(*x.transport, peer, Channel::kContract, std::as_writable_bytes(std::span(&value, 1)))
      .Wait(*x.watch);
  return value;
}

}  // namespace

HeaderExchange::HeaderExchange(Exchange& x) : x_(x), last_seen_(x.topology.size()) {}

// Ranks of a host compare in shared memory; then the first ranks of the hosts tell each other.
HeaderRange HeaderExchange::Compare(const Header& header, std::span<const std::byte> shown) {
  const Topology& t = x_.topology;
  const HeaderRange verdict = x_.node->Compare(header, *x_.watch, shown);
  if (IsOneHost(t)) return verdict;
  if (t.local_rank != 0) return x_.node->AwaitAnnouncement(*x_.watch);
  const HeaderRange all = CompareHosts(verdict);
  if (t.local_size() > 1) x_.node->Announce(all);
  return all;
}

// A message holds the host's verdict, then where each of its ranks is.
HeaderRange HeaderExchange::CompareHosts(const HeaderRange& mine) {
  const Topology& t = x_.topology;
  const auto make_message = [](size_t ranks) {
    return std::vector<std::byte>(sizeof(HeaderRange) + ranks * sizeof(Whereabouts));
  };
  std::vector<std::byte> sent = make_message(t.local_size());
  std::memcpy(sent.data(), &mine, sizeof(mine));
  for (int i = 0; i < t.local_size(); ++i) {
    const Whereabouts where = *x_.node->WhereIs(t.neighbors()[i]);
    std::memcpy(&sent[sizeof(HeaderRange) + i * sizeof(where)], &where, sizeof(where));
  }
  std::vector<std::vector<std::byte>> received;
  std::vector<Message> messages;
  for (const std::vector<int>& ranks : t.hosts) {
    received.push_back(make_message(ranks.size()));
    if (ranks.front() == x_.topology.rank) continue;
    messages.push_back(Receive(*x_.transport, ranks.front(), Channel::kContract, received.back()));
    messages.push_back(Send(*x_.transport, ranks.front(), Channel::kContract, sent));
  }
  Message::WaitAll(messages, *x_.watch);
  HeaderRange all = mine;
  for (size_t h = 0; h < t.hosts.size(); ++h) {
    if (static_cast<int>(h) == t.host()) continue;
    HeaderRange verdict;
    std::memcpy(&verdict, received[h].data(), sizeof(verdict));
    Merge(verdict, &all);
    for (size_t i = 0; i < t.hosts[h].size(); ++i) {
      std::memcpy(&last_seen_[t.hosts[h][i]],
                  &received[h][sizeof(HeaderRange) + i * sizeof(Whereabouts)], sizeof(Whereabouts));
    }
  }
  return all;
}

std::string HeaderExchange::WhereIs(int rank) const {
  const Topology& t = x_.topology;
  const bool is_near = t.host_of[rank] == t.host();
  std::optional<Whereabouts> where = x_.node->WhereIs(rank);
  if (!is_near && t.local_rank == 0) where = last_seen_[rank];
  if (!where) return "";
  return fmt::format("{}in {} of step {}", is_near ? "" : "last seen ", Name(where->phase),
                     where->step);
}

void HeaderExchange::SetWaitingFor(int rank) {
  const bool is_far = rank >= 0 && x_.topology.host_of[rank] != x_.topology.host();
  is_far ? x_.node->SetWaitingFor(rank, last_seen_[rank]) : x_.node->SetWaitingFor(-1, {});
}

// Rank 0 answers each rank of another host in turn. The answer that came back fastest counts, and
// is taken to have been given half-way.
double HeaderExchange::MeasureClockOffset() {
  constexpr int kRounds = 8;
  const Topology& t = x_.topology;
  if (t.rank == 0) {
    for (int rank = 1; rank < t.size(); ++rank) {
      for (int i = 0; i < kRounds && t.host_of[rank] != t.host(); ++i) {
        Await(x_, rank);
        Post(x_, rank, Now());
      }
    }
    return 0;
  }
  if (t.host_of[0] == t.host()) return 0;
  int64_t fastest = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  for (int i = 0; i < kRounds; ++i) {
    const int64_t start = Now();
    Post(x_, 0, 0);
    const int64_t answer = Await(x_, 0);
    const int64_t end = Now();
    if (end - start >= fastest) continue;
    fastest = end - start;
    offset = answer - (start + end) / 2;
  }
  return static_cast<double>(offset) * 1e-9;
}

}  // namespace carole::collectives
