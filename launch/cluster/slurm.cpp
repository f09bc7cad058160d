// Reads a Slurm allocation from environment variables.
//
// The problem. A process under Slurm must know all hosts of its job and how many ranks each of them
// has. The usual way is to call `scontrol show hostnames`. Slurm also puts the same facts into
// environment variables, in a compressed form. This file expands that form and calls no other
// program.
//
// Two variables describe the hosts, and they exist at two levels:
//
//                     whole allocation (batch script)   one step (process started by srun)
//   names of nodes    SLURM_JOB_NODELIST                SLURM_STEP_NODELIST
//   tasks of a node   SLURM_TASKS_PER_NODE              SLURM_STEP_TASKS_PER_NODE
//
// A step may use only some nodes of the allocation, so its variables win. There is one exception: a
// site can let the shell of salloc run in a step of its own
// (LaunchParameters=use_interactive_step). That step has one task on the first node, whatever the
// job has, so the allocation's variables win there. Slurm marks this step with a reserved number in
// SLURM_STEP_ID.
//
// A node list is a comma list of names. A name may contain brackets with numbers and ranges:
//
//   n[0-1,7],login    n0 n1 n7 login
//   r[08-10]          r08 r09 r10           a number is as wide as the first number of its range
//   r[1-2]n[0-1]      r1n0 r1n1 r2n0 r2n1   the last bracket varies fastest
//
// Counts are run-length encoded: 2(x3),1 means 2 2 2 1. The list has one count for each node.
//
// The phases of ReadSlurmCluster(): choose the level; expand both lists; check that they have the
// same length; build hosts and tasks; find the task of this process. An example with two tasks on
// n0 and n1 and one on n2:
//
//   SLURM_JOB_NODELIST=n[0-2]       hosts: n0 slots=2 first_rank=0
//   SLURM_TASKS_PER_NODE=2(x2),1           n1 slots=2 first_rank=2
//                                          n2 slots=1 first_rank=4
//
// Rank 0 becomes the chief, ranks 1 to 4 become workers 0 to 3. The rank of this process comes from
// FindRankPlacement(). Its host comes from SLURM_NODEID: ranks are numbered node by node here, but
// `srun --distribution=cyclic` places them differently.
//
// The text is not trusted. Every name passes ParseHost(), because it is printed into hostfiles and
// ssh configurations. The expansion is bounded (65536 nodes, 1048576 tasks): a short text such as
// "n[0-999999999]" would otherwise fill the memory. Numbers have at most 9 digits, so they fit an
// int.
#include "launch/cluster/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launch/cluster/address.h"
#include "launch/cluster/message_text.h"
#include "src/core/error.h"
#include "src/core/text/parse_number.h"

namespace carole::launch {
namespace {

constexpr size_t kMaxNodes = 1 << 16;
constexpr int kMaxTasksPerNode = 1 << 16;
constexpr int64_t kMaxTasks = 1 << 20;
// SLURM_STEP_ID of the shell of salloc (SLURM_INTERACTIVE_STEP in slurm.h).
constexpr std::string_view kInteractiveStep = "4294967290";
constexpr size_t kMaxDigits = 9;
constexpr const char* kJobNodeList = "SLURM_JOB_NODELIST";

// Reads one text from left to right. Errors show the whole text and the position.
class Reader {
 public:
  Reader(const std::string& where, std::string_view text) : where_(where), text_(text) {}

  bool AtEnd() const { return next_ == text_.size(); }

  // Skips `word` and returns true if the text continues with it.
  bool TakeIf(std::string_view word) {
    if (!text_.substr(next_).starts_with(word)) return false;
    next_ += word.size();
    return true;
  }
  // Skips `word`. Throws ConfigError if the text does not continue with it.
  void Expect(std::string_view word) {
    if (!TakeIf(word)) Refuse(fmt::format("'{}'", word));
  }

  // Returns the text up to the next of the characters `ends`, and skips it.
  std::string_view TakeUntil(std::string_view ends) {
    const size_t end = std::min(text_.find_first_of(ends, next_), text_.size());
    const std::string_view word = text_.substr(next_, end - next_);
    next_ = end;
    return word;
  }

  std::string_view TakeDigits() {
    const size_t end = std::min(text_.find_first_not_of("0123456789", next_), text_.size());
    const std::string_view digits = text_.substr(next_, end - next_);
    if (digits.empty() || digits.size() > kMaxDigits) Refuse("a number of 1 to 9 digits");
    next_ = end;
    return digits;
  }

  [[noreturn]] void Refuse(const std::string& want) const {
    throw ConfigError(fmt::format("{}: bad list at character {}: got {}, want {}", where_,
                                  next_ + 1, Quote(text_), want));
  }

 private:
  const std::string& where_;
  std::string_view text_;
  size_t next_ = 0;
};

// Returns -1 if the text is not a number.
int ToNumber(std::string_view digits) { return ParseNumber<int>(digits).value_or(-1); }

// Reads the inside of a bracket: "0-3,7]" gives 0 1 2 3 7, with leading zeros as they are written.
std::vector<std::string> TakeRanges(Reader& reader) {
  std::vector<std::string> numbers;
  do {
    const std::string_view first = reader.TakeDigits();
    const std::string_view last = reader.TakeIf("-") ? reader.TakeDigits() : first;
    const int begin = ToNumber(first), end = ToNumber(last);
    if (end < begin || static_cast<size_t>(end - begin) >= kMaxNodes - numbers.size())
      reader.Refuse(fmt::format("an ascending range and at most {} nodes", kMaxNodes));
    for (int number = begin; number <= end; ++number)
      numbers.push_back(fmt::format("{:0{}}", number, first.size()));
  } while (reader.TakeIf(","));
  reader.Expect("]");
  return numbers;
}

// Reads one entry of a node list, such as "r[0-1]n[0-3]", and returns all names that it stands for.
std::vector<std::string> TakeNames(Reader& reader) {
  std::vector<std::string> names{std::string(reader.TakeUntil("[],"))};
  while (reader.TakeIf("[")) {
    const std::vector<std::string> numbers = TakeRanges(reader);
    if (names.size() * numbers.size() > kMaxNodes)
      reader.Refuse(fmt::format("at most {} nodes", kMaxNodes));
    const std::string_view suffix = reader.TakeUntil("[],");
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers)
        longer.push_back(fmt::format("{}{}{}", name, number, suffix));
    }
    names = std::move(longer);
  }
  return names;
}

// Throws ConfigError in a heterogeneous job: its SLURM_JOB_NODELIST lists only the nodes of the
// first group.
void RequireOneGroup(const GetEnvFunction& get) {
  const char* groups = get("SLURM_HET_SIZE");
  if (groups == nullptr || ToNumber(groups) <= 1) return;
  throw ConfigError(fmt::format(
      "[slurm] SLURM_HET_SIZE: heterogeneous job: got {} groups, want 1; start the ranks with "
      "srun --mpi=pmix --het-group=0-{}",
      groups, ToNumber(groups) - 1));
}

// Returns the name of the step's variable if this process is in a step, otherwise the job's.
const char* ChooseVariable(const GetEnvFunction& get, const char* step_variable,
                           const char* job_variable) {
  const char* step = get("SLURM_STEP_ID");
  const bool is_interactive = step != nullptr && step == kInteractiveStep;
  return get(step_variable) != nullptr && !is_interactive ? step_variable : job_variable;
}

}  // namespace

std::vector<std::string> ExpandNodeList(const std::string& where, std::string_view text) {
  Reader reader(where, text);
  std::vector<std::string> hosts;
  do {
    for (std::string& name : TakeNames(reader)) {
      (void)ParseHost(where, name);
      hosts.push_back(
          std::move(name));  // not ParseHost()'s result: Slurm distinguishes GPU-0 from gpu-0
    }
    if (hosts.size() > kMaxNodes) reader.Refuse(fmt::format("at most {} nodes", kMaxNodes));
  } while (reader.TakeIf(","));
  if (!reader.AtEnd()) reader.Refuse("','");
  std::vector<std::string> sorted = hosts;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    throw ConfigError(fmt::format("{}: duplicate node: got {} twice, want it once", where, *twice));
  return hosts;
}

std::vector<int> ExpandCounts(const std::string& where, std::string_view text) {
  Reader reader(where, text);
  std::vector<int> counts;
  int64_t num_tasks = 0;
  do {
    const int count = ToNumber(reader.TakeDigits());
    if (count < 1 || count > kMaxTasksPerNode)
      reader.Refuse(fmt::format("1 to {} tasks on a node", kMaxTasksPerNode));
    int repeat = 1;
    if (reader.TakeIf("(x")) {
      repeat = ToNumber(reader.TakeDigits());
      reader.Expect(")");
    }
    if (counts.size() + static_cast<size_t>(repeat) > kMaxNodes)
      reader.Refuse(fmt::format("at most {} nodes", kMaxNodes));
    counts.insert(counts.end(), static_cast<size_t>(repeat), count);
    num_tasks += int64_t{repeat} * count;
    if (num_tasks > kMaxTasks) reader.Refuse(fmt::format("at most {} tasks", kMaxTasks));
  } while (reader.TakeIf(","));
  if (!reader.AtEnd()) reader.Refuse("','");
  return counts;
}

std::optional<Cluster> ReadSlurmCluster(const GetEnvFunction& get, int num_gpus) {
  const char* nodes_variable = ChooseVariable(get, "SLURM_STEP_NODELIST", kJobNodeList);
  const char* counts_variable =
      ChooseVariable(get, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (get(nodes_variable) == nullptr) return std::nullopt;
  if (std::string_view(nodes_variable) == kJobNodeList) RequireOneGroup(get);
  const std::vector<std::string> nodes =
      ExpandNodeList(fmt::format("[slurm] {}", nodes_variable), get(nodes_variable));
  std::vector<int> counts(nodes.size(), 1);
  if (get(counts_variable) != nullptr)
    counts = ExpandCounts(fmt::format("[slurm] {}", counts_variable), get(counts_variable));
  if (counts.size() != nodes.size())
    throw ConfigError(fmt::format("[slurm] {}: does not match {}: got {} nodes, want {}",
                                  counts_variable, nodes_variable, counts.size(), nodes.size()));
  const auto num_nodes = static_cast<int64_t>(nodes.size());
  if (num_nodes * num_gpus > kMaxTasks)
    throw ConfigError(
        fmt::format("[slurm] {}: too many ranks: got {} nodes of {} GPUs, want at most {} ranks",
                    nodes_variable, num_nodes, num_gpus, kMaxTasks));
  Cluster cluster;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const int slots = num_gpus > 0 ? num_gpus : counts[n];
    cluster.hosts.push_back(
        {.name = nodes[n], .alias = nodes[n], .slots = slots, .first_rank = cluster.size()});
    for (int t = 0; t < slots; ++t) {
      const int rank = cluster.hosts.back().first_rank + t;
      cluster.tasks.push_back({.role = rank == 0 ? Role::kChief : Role::kWorker,
                               .index = std::max(rank - 1, 0),
                               .host = nodes[n],
                               .rank = rank});
    }
  }
  const std::optional<RankPlacement> placement = FindRankPlacement(get);
  if (!placement.has_value() || placement->rank >= cluster.size()) return cluster;
  cluster.me = cluster.tasks[placement->rank];
  // srun --distribution=cyclic places ranks in another order; Slurm says on which node this one is.
  const char* node = get("SLURM_NODEID");
  const size_t index = node == nullptr ? nodes.size() : static_cast<size_t>(ToNumber(node));
  if (index < nodes.size()) cluster.me->host = nodes[index];
  return cluster;
}

}  // namespace carole::launch
