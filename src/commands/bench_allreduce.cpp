// carole bench allreduce: the sum over ranks beside the memory's own speed.
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

// Of GPUs by NCCL, else of the host's memory.
std::vector<collectives::AllReduceSample> Measure(const Job& job,
                                                  const collectives::BenchOptions& options) {
  if (job.backend().on_host()) return collectives::BenchAllReduce(job.communicator(), options);
  job.ConnectDevices();
  const auto memory =
      MakeDeviceOwned<GpuMemory>(job, job.backend(), std::ranges::max(options.sizes));
  return collectives::BenchAllReduce(job.communicator(), options, memory.get());
}

void PrintJson(const collectives::AllReduceSample& sample) {
  PrintJsonLine({{"algorithm", sample.algorithm},
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
    fmt::print("{:<16}{:>6}{:>14}{:>12.1f}{:>12.4g}{:>12.4g}\n", s.algorithm, s.ranks, s.bytes,
               s.time_us_median, s.bus_gb_per_s, s.copy_gb_per_s);
}

}  // namespace

int BenchAllreduce(const Arguments& arguments) {
  MachineFlags machine;
  collectives::BenchOptions options;
  bool json = false;
  CommandLine line("carole bench allreduce", "Speed of the sum over ranks; start it under mpirun.");
  AddMachineFlags(line, machine);
  AddCollectiveFlags(line, machine);
  line.Group("Benchmark");
  line.AddList("sizes", options.sizes, "bytes of each rank, a comma list")
      ->check(CLI::PositiveNumber);
  line.AddPositive("steps", options.steps, "sums that are timed, of each size");
  line.AddNonNegative("warmup_steps", options.warmup_steps, "sums before");
  line.AddBool("json", json, "one JSON object a line");
  if (!line.Parse(arguments)) return 0;
  if (options.sizes.empty())
    throw UsageError("[flags] --sizes: got none, want bytes of each rank, a comma list");
  options.algorithm = machine.all_reduce;
  return RunJob(machine, [&](Job& job) {
    const auto samples = Measure(job, options);
    if (!job.is_chief()) return 0;
    if (!json) PrintTable(samples);
    for (const auto& sample : samples) {
      if (json) PrintJson(sample);
    }
    return 0;
  });
}

}  // namespace carole::commands
