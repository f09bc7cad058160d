#include "collectives/algorithms/algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "src/core/divide_up.h"
#include "src/core/error.h"
#include "src/core/hints.h"

namespace carole::collectives {

Piece SplitEvenly(size_t count, size_t parts, size_t index) {
  const size_t length = count / parts;
  const size_t longer = count % parts;
  return {index * length + std::min(index, longer), length + (index < longer ? 1 : 0)};
}

int Topology::num_rails() const {
  size_t rails = hosts.front().size();
  for (const auto& ranks : hosts) rails = std::min(rails, ranks.size());
  return static_cast<int>(rails);
}

bool Topology::has_even_hosts() const {
  return std::ranges::all_of(hosts, [&](const auto& h) { return h.size() == hosts[0].size(); });
}

Members Topology::AllRanks() const {
  Members all{.ranks = std::vector<int>(host_of.size()), .index = rank};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  return all;
}

Members Topology::RailMembers() const {
  Members members{.index = host()};
  for (const auto& ranks : hosts) members.ranks.push_back(ranks.at(local_rank));
  return members;
}

Topology MakeTopology(int rank, std::span<const std::string> host_keys) {
  Topology t;
  t.rank = rank;
  std::map<std::string_view, int> numbers;
  for (size_t r = 0; r < host_keys.size(); ++r) {
    const auto [entry, is_new] = numbers.emplace(host_keys[r], static_cast<int>(t.hosts.size()));
    if (is_new) t.hosts.emplace_back();
    t.host_of.push_back(entry->second);
    if (static_cast<int>(r) == rank) t.local_rank = static_cast<int>(t.hosts[entry->second].size());
    t.hosts[entry->second].push_back(static_cast<int>(r));
  }
  t.machine_rank = t.local_rank;
  t.machine_size = t.local_size();
  return t;
}

RingPlan PlanRing(size_t count, int size, int index, size_t segment_elements) {
  RingPlan plan;
  const size_t longest_chunk = SplitEvenly(count, size, 0).count;
  plan.lag = std::max<size_t>(1, DivideUp(longest_chunk, segment_elements));
  plan.max_segment = SplitEvenly(longest_chunk, plan.lag, 0).count;
  // Chunk numbers wrap around: in turn t a member sends chunk index - t.
  const auto segment_of = [&](int chunk, size_t segment) {
    const Piece c = SplitEvenly(count, size, (chunk + 2 * size) % size);
    const Piece s = SplitEvenly(c.count, plan.lag, segment);
    return Piece{c.begin + s.begin, s.count};
  };
  for (int turn = 0; turn < 2 * (size - 1); ++turn) {
    for (size_t s = 0; s < plan.lag; ++s) {
      plan.steps.push_back({.send = segment_of(index - turn, s),
                            .receive = segment_of(index - turn - 1, s),
                            .add = turn < size - 1});
    }
  }
  return plan;
}

void RequireFits(AllReduceAlgorithm algorithm, const Topology& topology) {
  if (algorithm == AllReduceAlgorithm::kAuto || RowOf(algorithm).fits(topology)) return;
  OptionProblem problem{.tag = "comm",
                        .option = "all_reduce",
                        .problem = fmt::format("{} does not fit", Name(algorithm))};
  if (topology.shares_memory()) {
    problem.got = fmt::format("{} hosts", topology.hosts.size());
    problem.want = RowOf(algorithm).requirement;
  } else {
    problem.got = "ranks of one machine that share no memory";
    problem.want = "more space in /dev/shm";
    problem.hint = kMoreSharedMemoryHint;
  }
  throw UsageError(problem);
}

std::vector<AllReduceAlgorithm> AutoCandidates(const Topology& topology) {
  std::vector<AllReduceAlgorithm> candidates;
  for (const AllReduceEntry& row : kAllReduce) {
    if (row.is_auto_candidate(topology)) candidates.push_back(row.algorithm);
  }
  return candidates;
}

}  // namespace carole::collectives
