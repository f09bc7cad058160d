// carole bench allreduce: measures the speed of all-reduce and, for comparison, of a memory copy.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "collectives/bench.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/setup/rank_context.h"
#include "src/core/error.h"

namespace carole::commands {
namespace {

// Device memory for the benchmark.
class GpuMemory : public collectives::BenchMemory {
 public:
  GpuMemory(const Backend& backend, size_t bytes)
      : backend_(backend),
        size_(bytes),
        range_(backend.Allocate(bytes)),
        target_(backend.Allocate(bytes)) {}
  std::span<float> range() override {
    return {reinterpret_cast<float*>(range_.get()), size_ / sizeof(float)};
  }
  void Copy(size_t bytes) override { backend_.Copy(target_.get(), range_.get(), bytes); }
  void Finish() override { backend_.Synchronize(); }

 private:
  const Backend& backend_;
  size_t size_;
  DeviceMemory range_, target_;
};

// Measures NCCL if ranks compute on GPUs, else the all-reduce of host memory. Collective.
std::vector<collectives::AllReduceSample> Measure(const RankContext& context,
                                                  const collectives::BenchOptions& options) {
  if (!context.backend().has_own_memory())
    return collectives::BenchAllReduce(context.communicator(), options);
  context.ConnectDevices();
  const auto memory =
      MakeDeviceOwned<GpuMemory>(context, context.backend(), std::ranges::max(options.sizes));
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
  CommandLine line(
      "carole bench allreduce",
      "Measures the speed of all-reduce over the ranks of a job. Start it under mpirun.",
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
  return RunAsRank(machine, [&](RankContext& context) {
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
