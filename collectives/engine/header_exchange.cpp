// How all ranks compare the header of an operation before its data moves.
//
// The goal. Ranks that disagree must not reduce anything. They must all report the same error,
// which names two ranks and what each of them called. The check precedes every operation, so it
// must be short: one meeting in shared memory on each host, and one message latency among hosts.
//
// The data. Ranks do not collect all headers. They keep a HeaderRange: the smallest and the largest
// header in the order of memcmp, and a rank that has each. If the two are equal, all headers are.
// Ranges can be merged in any order with the same result, so all ranks compute the same range and
// throw the same error. Its size does not depend on the number of ranks.
//
//   message of a host = HeaderRange (2 x 80 bytes + 2 ranks = 168 bytes)
//                       RankActivity of each of its ranks (16 bytes each)
//
// The phases of CompareHeaders():
//   1. On each host: all ranks write their headers to shared memory, meet once, and merge what they
//      read (NodeGroup::CompareHeaders). With one host, this is all.
//   2. Among hosts: the first rank of each host sends its message to the first ranks of all other
//      hosts, and merges the ranges that it receives from them.
//   3. On each host: the first rank publishes the result in shared memory
//      (NodeGroup::PublishResult).
//
//   Example: 3 hosts with 2 ranks each. All ranks call "all_reduce of 100 fp32"; rank 3 has 99.
//     After phase 1: hosts 0 and 2 have the range [100, 100]; host 1 has 99 and 100, with rank 3
//     for 99 and rank 2 for 100. In phase 2, rank 0 sends 200 bytes to ranks 2 and 4, and so on: 6
//     messages, all at the same time. After phase 3 all six ranks have the same range: rank 3 has
//     99, and rank 0 is the lowest of the ranks that have 100. All throw an error that says so.
//
// Two hosts spend 0.4 ms of a step of resnet_v1_50 at batch 16 on comparisons (0.01 %).
//
// Activities. The same messages carry what each rank was doing, so stall reports can tell it of
// ranks of other hosts too. It is as old as the last operation, so reports say "last seen in". A
// rank that waits for a remote rank shows that rank's activity to its host (SetWaitingFor).
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

void SendValue(CollectiveContext& context, int peer, int64_t value) {
  Send(*context.transport, peer, Channel::kHeader, std::as_bytes(std::span(&value, 1)))
      .Wait(*context.watchdog);
}

int64_t ReceiveValue(CollectiveContext& context, int peer) {
  int64_t value = 0;
  Receive(*context.transport, peer, Channel::kHeader, std::as_writable_bytes(std::span(&value, 1)))
      .Wait(*context.watchdog);
  return value;
}

}  // namespace

HeaderExchange::HeaderExchange(CollectiveContext& context)
    : context_(context), last_seen_(context.topology.size()) {}

HeaderRange HeaderExchange::CompareHeaders(const OperationHeader& header,
                                           std::span<const std::byte> inline_data) {
  const Topology& t = context_.topology;
  const HeaderRange range = context_.node->CompareHeaders(header, *context_.watchdog, inline_data);
  if (IsOneHost(t)) return range;
  if (t.local_rank != 0) return context_.node->AwaitResult(*context_.watchdog);
  const HeaderRange all = CompareAcrossHosts(range);
  if (t.local_size() > 1) context_.node->PublishResult(all);
  return all;
}

HeaderRange HeaderExchange::CompareAcrossHosts(const HeaderRange& mine) {
  const Topology& t = context_.topology;
  const auto make_message = [](size_t ranks) {
    return std::vector<std::byte>(sizeof(HeaderRange) + ranks * sizeof(RankActivity));
  };
  std::vector<std::byte> sent = make_message(t.local_size());
  std::memcpy(sent.data(), &mine, sizeof(mine));
  for (int i = 0; i < t.local_size(); ++i) {
    const RankActivity activity = *context_.node->ActivityOf(t.local_ranks()[i]);
    std::memcpy(&sent[sizeof(HeaderRange) + i * sizeof(activity)], &activity, sizeof(activity));
  }
  std::vector<std::vector<std::byte>> received;
  std::vector<Message> messages;
  for (const std::vector<int>& ranks : t.hosts) {
    received.push_back(make_message(ranks.size()));
    if (ranks.front() == context_.topology.rank) continue;
    messages.push_back(
        Receive(*context_.transport, ranks.front(), Channel::kHeader, received.back()));
    messages.push_back(Send(*context_.transport, ranks.front(), Channel::kHeader, sent));
  }
  Message::WaitAll(messages, *context_.watchdog);
  HeaderRange all = mine;
  for (size_t h = 0; h < t.hosts.size(); ++h) {
    if (static_cast<int>(h) == t.host()) continue;
    HeaderRange range;
    std::memcpy(&range, received[h].data(), sizeof(range));
    Merge(range, &all);
    for (size_t i = 0; i < t.hosts[h].size(); ++i) {
      std::memcpy(&last_seen_[t.hosts[h][i]],
                  &received[h][sizeof(HeaderRange) + i * sizeof(RankActivity)],
                  sizeof(RankActivity));
    }
  }
  return all;
}

std::string HeaderExchange::DescribeActivity(int rank) const {
  const Topology& t = context_.topology;
  const bool is_local = t.host_of[rank] == t.host();
  std::optional<RankActivity> activity = context_.node->ActivityOf(rank);
  if (!is_local && t.local_rank == 0) activity = last_seen_[rank];
  if (!activity) return "";
  return fmt::format("{}in the {} phase of step {}", is_local ? "" : "last seen ",
                     Name(activity->phase), activity->step);
}

void HeaderExchange::SetWaitingFor(int rank) {
  const bool is_remote = rank >= 0 && context_.topology.host_of[rank] != context_.topology.host();
  is_remote ? context_.node->SetWaitingFor(rank, last_seen_[rank])
            : context_.node->SetWaitingFor(-1, {});
}

// Rank 0 sends its time to one rank of another host after the other, several times. The fastest
// round trip counts. Rank 0 is assumed to have read its clock in the middle of it.
double HeaderExchange::MeasureClockOffset() {
  constexpr int kRounds = 8;
  const Topology& t = context_.topology;
  if (t.rank == 0) {
    for (int rank = 1; rank < t.size(); ++rank) {
      for (int i = 0; i < kRounds && t.host_of[rank] != t.host(); ++i) {
        ReceiveValue(context_, rank);
        SendValue(context_, rank, Now());
      }
    }
    return 0;
  }
  if (t.host_of[0] == t.host()) return 0;
  int64_t fastest = std::numeric_limits<int64_t>::max();
  int64_t offset = 0;
  for (int i = 0; i < kRounds; ++i) {
    const int64_t start = Now();
    SendValue(context_, 0, 0);
    const int64_t answer = ReceiveValue(context_, 0);
    const int64_t end = Now();
    if (end - start >= fastest) continue;
    fastest = end - start;
    offset = answer - (start + end) / 2;
  }
  return static_cast<double>(offset) * 1e-9;
}

}  // namespace carole::collectives
