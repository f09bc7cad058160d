#include "src/commands/setup/activation_memory.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "launch/machine/memory.h"
#include "src/core/error.h"
#include "src/core/hash.h"
#include "src/core/host_name.h"
#include "src/core/log.h"
#include "src/core/text/parse_number.h"
#include "src/train/step/step_memory.h"

namespace carole::commands {
namespace {

constexpr double kGiB = 1 << 30;
constexpr double kMostGiB = 1 << 20;
constexpr double kShareOfReserve = 0.1;  // of a rank's memory: images, libraries, communication

std::optional<double> ParseGiB(const std::string& text) {
  const auto gib = ParseNumber<double>(text);
  return gib && *gib > 0 && *gib <= kMostGiB ? gib : std::nullopt;
}

// The least that any rank can have of its device's memory, or of its host's; in bytes.
int64_t LeastShare(const Job& job) {
  collectives::Communicator& communicator = job.communicator();
  struct Rank {
    uint64_t memory;  // ranks share it where this is the same
    int64_t available;
  };
  const auto free = job.backend().FreeBytes();
  const Rank mine = free ? Rank{static_cast<uint64_t>(job.rank()), static_cast<int64_t>(*free)}
                         : Rank{Fnv1a64(HostName()), launch::AvailableMemory()};
  const std::vector<Rank> all = AllGather(communicator, mine, {.what = "memory"});
  int64_t least = mine.available;
  for (const Rank& rank : all) {
    const auto neighbors = std::count_if(
        all.begin(), all.end(), [&](const Rank& other) { return other.memory == rank.memory; });
    least = std::min<int64_t>(least, rank.available / std::max<int64_t>(neighbors, 1));
  }
  return least;
}

// Of the bytes that a rank has.
size_t ActivationShare(double share, const Graph& graph, const train::StepOptions& options) {
  const auto state = static_cast<double>(train::StateBytes(graph, options));
  const double left = (1 - kShareOfReserve) * share - state;
  if (left <= 0) {
    throw ConfigError(fmt::format(
        "[memory] --activation_memory=auto: nothing is left for activations: a rank has {:.2f} "
        "GiB, weights, gradients and slots take {:.2f}; use fewer ranks on a machine",
        share / kGiB, state / kGiB));
  }
  LogInfo("memory", "a rank has {:.2f} GiB, {:.2f} of them for activations", share / kGiB,
          left / kGiB);
  return static_cast<size_t>(left);
}

}  // namespace

void AddActivationMemoryFlag(CommandLine& line, std::string& flag) {
  line.Add("activation_memory", flag,
           "GiB for activations, of each rank: computes some again in backward when they take "
           "more; auto: what the machine has")
      ->check([](const std::string& text) {
        const bool good = text.empty() || text == "auto" || ParseGiB(text).has_value();
        return good ? std::string() : "got " + text + ", want auto or a number of GiB above 0";
      });
}

void SetMemory(const std::string& flag, const Job& job, const Graph& graph,
               train::StepOptions& options) {
  const int64_t share = LeastShare(job);
  // One rank warns for all, as they have the same.
  if (share > 0 && job.is_chief() && job.backend().on_host()) options.host_memory = share;
  if (flag == "auto") {
    options.activation_bytes = ActivationShare(static_cast<double>(share), graph, options);
  } else if (!flag.empty()) {
    options.activation_bytes = static_cast<size_t>(*ParseGiB(flag) * kGiB);
  }
}

}  // namespace carole::commands
