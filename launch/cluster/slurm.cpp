#include "launch/cluster/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launch/cluster/address.h"
#include "launch/cluster/text.h"
#include "src/core/error.h"
#include "src/core/text/parse_number.h"

namespace carole::launch {
namespace {

constexpr size_t kMaxNodes = 1 << 16;
constexpr int kMaxTasksPerNode = 1 << 16;
constexpr int64_t kMaxTasks = 1 << 20;
// What salloc's own shell says that its step is (SLURM_INTERACTIVE_STEP of slurm.h): one task on
// the first node, whatever the job has.
constexpr std::string_view kInteractiveStep = "4294967290";
constexpr size_t kMaxDigits = 9;
constexpr const char* kNodesOfJob = "SLURM_JOB_NODELIST";

// One text that is read from left to right; errors show it as a whole.
class Reader {
 public:
  Reader(const std::string& where, std::string_view text) : where_(where), text_(text) {}

  bool AtEnd() const { return next_ == text_.size(); }

  bool Take(std::string_view word) {
    if (!text_.substr(next_).starts_with(word)) return false;
    next_ += word.size();
    return true;
  }
  void Want(std::string_view word) {
    if (!Take(word)) Refuse(fmt::format("'{}'", word));
  }

  // Up to one of `ends`.
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

// -1 for what is no number.
int ToNumber(std::string_view digits) { return ParseNumber<int>(digits).value_or(-1); }

// "0-3,7]" -> 0 1 2 3 7, as wide as they are written.
std::vector<std::string> TakeRanges(Reader& reader) {
  std::vector<std::string> numbers;
  do {
    const std::string_view first = reader.TakeDigits();
    const std::string_view last = reader.Take("-") ? reader.TakeDigits() : first;
    const int begin = ToNumber(first), end = ToNumber(last);
    if (end < begin || static_cast<size_t>(end - begin) >= kMaxNodes - numbers.size())
      reader.Refuse(fmt::format("a range that ascends and at most {} nodes", kMaxNodes));
    for (int number = begin; number <= end; ++number)
      numbers.push_back(fmt::format("{:0{}}", number, first.size()));
  } while (reader.Take(","));
  reader.Want("]");
  return numbers;
}

// All names that one entry of the list stands for: "r[0-1]n[0-3]".
std::vector<std::string> TakeNames(Reader& reader) {
  std::vector<std::string> names{std::string(reader.TakeUntil("[],"))};
  while (reader.Take("[")) {
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

// Of a heterogeneous job they are its first group's.
void RequireOneGroup(const GetVariable& get) {
  const char* groups = get("SLURM_HET_SIZE");
  if (groups == nullptr || ToNumber(groups) <= 1) return;
  throw ConfigError(fmt::format(
      "[slurm] SLURM_HET_SIZE: a heterogeneous job: got {} groups, want 1; start the ranks with "
      "srun --mpi=pmix --het-group=0-{}",
      groups, ToNumber(groups) - 1));
}

// The step's variable, if this is in one, else the job's.
const char* Choose(const GetVariable& get, const char* of_step, const char* of_job) {
  const char* step = get("SLURM_STEP_ID");
  const bool is_interactive = step != nullptr && step == kInteractiveStep;
  return get(of_step) != nullptr && !is_interactive ? of_step : of_job;
}

}  // namespace

std::vector<std::string> ExpandNodeList(const std::string& where, std::string_view text) {
  Reader reader(where, text);
  std::vector<std::string> hosts;
  do {
    for (std::string& name : TakeNames(reader)) {
      (void)ParseHost(where, name);
      hosts.push_back(std::move(name));  // as it is written: Slurm's GPU-0 is not gpu-0
    }
    if (hosts.size() > kMaxNodes) reader.Refuse(fmt::format("at most {} nodes", kMaxNodes));
  } while (reader.Take(","));
  if (!reader.AtEnd()) reader.Refuse("','");
  std::vector<std::string> sorted = hosts;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    throw ConfigError(fmt::format("{}: a node twice: got {} again, want it once", where, *twice));
  return hosts;
}

std::vector<int> ExpandCounts(const std::string& where, std::string_view text) {
  Reader reader(where, text);
  std::vector<int> counts;
  int64_t all = 0;
  do {
    const int count = ToNumber(reader.TakeDigits());
    if (count < 1 || count > kMaxTasksPerNode)
      reader.Refuse(fmt::format("1 to {} tasks on a node", kMaxTasksPerNode));
    int repeat = 1;
    if (reader.Take("(x")) {
      repeat = ToNumber(reader.TakeDigits());
      reader.Want(")");
    }
    if (counts.size() + static_cast<size_t>(repeat) > kMaxNodes)
      reader.Refuse(fmt::format("at most {} nodes", kMaxNodes));
    counts.insert(counts.end(), static_cast<size_t>(repeat), count);
    all += int64_t{repeat} * count;
    if (all > kMaxTasks) reader.Refuse(fmt::format("at most {} tasks", kMaxTasks));
  } while (reader.Take(","));
  if (!reader.AtEnd()) reader.Refuse("','");
  return counts;
}

std::optional<Cluster> ReadSlurm(const GetVariable& get, int num_gpus) {
  const char* nodes_variable = Choose(get, "SLURM_STEP_NODELIST", kNodesOfJob);
  const char* counts_variable = Choose(get, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (get(nodes_variable) == nullptr) return std::nullopt;
  if (std::string_view(nodes_variable) == kNodesOfJob) RequireOneGroup(get);
  const std::vector<std::string> nodes =
      ExpandNodeList(fmt::format("[slurm] {}", nodes_variable), get(nodes_variable));
  std::vector<int> counts(nodes.size(), 1);
  if (get(counts_variable) != nullptr)
    counts = ExpandCounts(fmt::format("[slurm] {}", counts_variable), get(counts_variable));
  if (counts.size() != nodes.size())
    throw ConfigError(fmt::format("[slurm] {}: does not fit {}: got {} nodes, want {}",
                                  counts_variable, nodes_variable, counts.size(), nodes.size()));
  const auto machines = static_cast<int64_t>(nodes.size());
  if (machines * num_gpus > kMaxTasks)
    throw ConfigError(fmt::format("[slurm] {}: too many ranks: got {} nodes of {} GPUs, want {}",
                                  nodes_variable, machines, num_gpus, kMaxTasks));
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
  const std::optional<RankPlacement> place = FindRankPlacement(get);
  if (!place.has_value() || place->rank >= cluster.size()) return cluster;
  cluster.me = cluster.tasks[place->rank];
  // srun --distribution=cyclic deals the ranks out differently; Slurm knows where this one is.
  const char* node = get("SLURM_NODEID");
  const size_t index = node == nullptr ? nodes.size() : static_cast<size_t>(ToNumber(node));
  if (index < nodes.size()) cluster.me->host = nodes[index];
  return cluster;
}

}  // namespace carole::launch
