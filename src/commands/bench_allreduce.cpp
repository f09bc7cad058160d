// carole bench allreduce: measures the speed of all-reduce, checks its sums, and measures the speed
// of a memory copy for comparison.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "collectives/bench.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/flags/flag_check.h"
#include "src/commands/setup/bench_memory.h"
#include "src/commands/setup/rank_context.h"
#include "src/core/error.h"

namespace carole::commands {
namespace {

// Returns the largest size in bytes for which every rank has memory. A measurement has a range to
// reduce, a target of copies and the wanted sums. On a device the first two are in its memory, and
// the host has a copy of the range. Collective.
uint64_t MaxBytes(const RankContext& context) {
  const bool is_device = context.backend().has_own_memory();
  const int64_t host = context.MinMemoryShare(RankContext::Memory::kHost);
  const uint64_t most = host > 0 ? static_cast<uint64_t>(host) / (is_device ? 2 : 3)
                                 : std::numeric_limits<uint64_t>::max();
  if (!is_device) return most;
  const int64_t device = context.MinMemoryShare(RankContext::Memory::kBackend);
  return std::min(most, static_cast<uint64_t>(device) / 2);
}

// Throws ConfigError on all ranks if one has too little memory for the largest size. Collective:
// no rank allocates memory before all have looked how much is left.
void RequireMemory(const RankContext& context, const std::vector<size_t>& sizes) {
  const uint64_t most = MaxBytes(context);
  const size_t largest = std::ranges::max(sizes);
  if (largest <= most) return;
  throw ConfigError({.tag = "bench",
                     .option = "sizes",
                     .problem = "too large for the memory of a rank",
                     .got = largest,
                     .want = fmt::format("at most {} bytes", most),
                     .hint = "use smaller sizes, fewer ranks per host or more memory"});
}

// Measures NCCL if ranks compute on GPUs, else the all-reduce of host memory. Collective.
std::vector<collectives::AllReduceSample> Measure(const RankContext& context,
                                                  const collectives::BenchOptions& options) {
  const bool is_device = context.backend().has_own_memory();
  if (is_device) context.ConnectDevices();
  context.ChooseWireDtype();
  if (!is_device) return collectives::BenchAllReduce(context.communicator(), options);
  const auto memory = MakeOwnedUnlessFailing<BackendBenchMemory>(
      context, context.backend(), context.communicator(), std::ranges::max(options.sizes));
  return collectives::BenchAllReduce(context.communicator(), options, memory.get());
}

void PrintJson(const collectives::AllReduceSample& sample) {
  PrintJsonLine({{"algorithm", Name(sample.algorithm)},
                 {"ranks", sample.ranks},
                 {"bytes", sample.bytes},
                 {"time_us_median", sample.time_us_median},
                 {"bus_gb_per_s", sample.bus_gb_per_s},
                 {"copy_gb_per_s", sample.copy_gb_per_s}});
}

void PrintTable(const std::vector<collectives::AllReduceSample>& samples) {
  fmt::print("{:<16}{:>6}{:>14}{:>12}{:>12}{:>12}\n", "algorithm", "ranks", "bytes", "median us",
             "bus GB/s", "copy GB/s");
  for (const collectives::AllReduceSample& s : samples)
    fmt::print("{:<16}{:>6}{:>14}{:>12.1f}{:>12.4g}{:>12.4g}\n", Name(s.algorithm), s.ranks,
               s.bytes, s.time_us_median, s.bus_gb_per_s, s.copy_gb_per_s);
}

}  // namespace

int BenchAllreduce(const Arguments& arguments) {
  MachineConfig machine;
  collectives::BenchOptions options;
  bool json = false;
  CommandLine line("carole bench allreduce",
                   "Measures the speed of all-reduce over the ranks of a job, and checks the sums "
                   "on every rank. "
                   "Start it under mpirun.",
                   {"mpirun -np 4 carole bench allreduce",
                    "mpirun -np 4 carole bench allreduce --all_reduce=ring --sizes=1048576"});
  AddMachineFlags(line, machine);
  AddCollectiveFlags(line, machine);
  line.Group("Benchmark");
  constexpr HelpLevel kBasic = HelpLevel::kBasic;
  line.Add("sizes", options.sizes, "Message sizes in bytes.", kBasic).Positive();
  line.AddPositive("steps", options.steps, "All-reduces of each size that are timed.", kBasic);
  line.AddNonNegative("warmup_steps", options.warmup_steps,
                      "All-reduces of each size before the timed ones.", kBasic);
  line.Add("json", json, "Print one JSON object per line.", kBasic);
  if (!line.Parse(arguments)) return 0;
  if (options.sizes.empty())
    throw UsageError("[flags] --sizes: got none, want a comma list of message sizes in bytes");
  machine.memory_flags = "--sizes";
  return RunAsRank(machine, [&](RankContext& context) {
    CheckFlagsMatch(line, context.communicator());
    RequireMemory(context, options.sizes);
    const auto samples = Measure(context, options);
    if (!context.is_chief()) return 0;
    if (!json) PrintTable(samples);
    for (const auto& sample : samples) {
      if (json) PrintJson(sample);
    }
    return 0;
  });
}

}  // namespace carole::commands
