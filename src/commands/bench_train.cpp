// carole bench train: training steps on synthetic images, or on a data set's, and where their time
// goes.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>

#include "io/pipeline/synthetic_batches.h"
#include "nets/nets.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/flags/rank_flags.h"
#include "src/commands/setup/activation_memory.h"
#include "src/commands/setup/inputs.h"
#include "src/commands/setup/rank_context.h"
#include "src/core/stopwatch.h"
#include "src/train/step/train_step.h"

namespace carole::commands {
namespace {

struct BenchFlags {
  DatasetFlags dataset;
  NetFlags net{.model_name = "resnet_v1_50"};
  MachineFlags machine;
  RankFlags ranks;
  std::string activation_memory;
  int64_t batch_size = 32;
  int steps = 20;
  int warmup_steps = 5;
  bool json = false;
  bool profile = false;
};

// Means over steps, but where a name says otherwise.
struct Measurement {
  double step_ms_median = 0;
  double step_ms_p90 = 0;
  double images_per_second = 0;  // of all ranks
  enum Part { kInput, kForward, kBackward, kExposed, kOptimizer, kParts };
  double part_ms[kParts] = {};      // mean over ranks too
  double agreement_ms = 0;          // in which ranks compare what they are about to sum
  std::vector<double> step_ends_s;  // seconds on the monotonic clock of this machine
  int64_t peak_rss_bytes = 0;       // of the largest rank
};

bool IsTuning(const train::TrainStep& step) {
  const collectives::BucketTuner* tuner = step.bucket_tuner();
  return tuner != nullptr && !tuner->done();
}

int64_t PeakRssOverRanks(collectives::Communicator& communicator) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const int64_t mine = usage.ru_maxrss * 1024;
  return std::ranges::max(AllGather(communicator, mine, {.what = "memory"}));
}

// A barrier is what precedes every collective: the comparison alone.
double BarrierMs(collectives::Communicator& communicator) {
  constexpr int kBarriers = 200;
  Stopwatch watch;
  for (int i = 0; i < kBarriers; ++i) communicator.Barrier({.what = "time of a barrier"});
  return watch.Lap() / kBarriers;
}

Measurement Measure(const BenchFlags& flags, int64_t local_batch, Job& job, train::TrainStep& step,
                    io::BatchSource& source) {
  Measurement result;
  int64_t num_steps = 0;
  const auto begin = [&] {
    Stopwatch watch;
    const io::Batch& batch = *source.Next();
    step.Begin(batch, {.step = num_steps++, .learning_rate = 1e-3, .input_ms = watch.Lap()});
  };
  const auto run = [&] {
    if (step.num_in_flight() == 0) begin();
    if (step.CanRunAhead()) begin();
    return step.End();
  };
  while (num_steps < flags.warmup_steps || IsTuning(step)) run();
  step.executable().ResetTimes();
  const double barrier_ms = BarrierMs(job.communicator());
  const auto num_collectives = std::make_shared<std::atomic<int>>(0);  // the thread of sums counts
  job.communicator().SetObserver(
      [num_collectives](const collectives::CollectiveRecord&) { ++*num_collectives; });
  const double start_s = SteadySeconds();
  for (int i = 0; i < flags.steps; ++i) {
    const train::StepResult r = run();
    result.step_ends_s.push_back(SteadySeconds());
    const double parts[] = {r.input_ms, r.forward_ms, r.backward_ms, r.exposed_communication_ms,
                            r.optimizer_ms};
    for (int p = 0; p < Measurement::kParts; ++p)
      result.part_ms[p] += parts[p] / flags.steps / job.size();
  }
  while (step.num_in_flight() > 0) step.End();
  result.agreement_ms = barrier_ms * *num_collectives / flags.steps;
  job.communicator().AllReduce(std::span<double>(result.part_ms), {.what = "times"});
  result.images_per_second = static_cast<double>(flags.steps * local_batch * job.size()) /
                             (result.step_ends_s.back() - start_s);
  std::vector<double> seconds = result.step_ends_s;
  std::adjacent_difference(seconds.begin(), seconds.end(), seconds.begin());
  seconds.front() -= start_s;
  std::sort(seconds.begin(), seconds.end());
  result.step_ms_median = 1e3 * seconds[seconds.size() / 2];
  result.step_ms_p90 = 1e3 * seconds[seconds.size() * 9 / 10];
  result.peak_rss_bytes = PeakRssOverRanks(job.communicator());
  return result;
}

void Print(const BenchFlags& flags, const Job& job, const nets::ModelOptions& input,
           const Measurement& m, const collectives::BucketTuner* tuner) {
  const int decode_threads =
      flags.dataset.dataset_dir.empty() ? 0 : DecodeThreads(flags.dataset, job);
  nlohmann::ordered_json row{{"net", flags.net.model_name},
                             {"batch_size", flags.batch_size},
                             {"image_size", input.image_size},
                             {"precision", flags.machine.precision},
                             {"input_dtype", input.normalize ? "uint8" : "fp32"},
                             {"backend", job.backend().name()},
                             {"ranks", job.size()},
                             {"threads", job.backend().threads()},
                             {"decode_threads", decode_threads},
                             {"images_per_second", m.images_per_second},
                             {"step_ms_median", m.step_ms_median},
                             {"step_ms_p90", m.step_ms_p90},
                             {"input_ms", m.part_ms[Measurement::kInput]},
                             {"forward_ms", m.part_ms[Measurement::kForward]},
                             {"backward_ms", m.part_ms[Measurement::kBackward]},
                             {"exposed_communication_ms", m.part_ms[Measurement::kExposed]},
                             {"optimizer_ms", m.part_ms[Measurement::kOptimizer]},
                             {"agreement_ms", m.agreement_ms},
                             {"peak_rss_bytes", m.peak_rss_bytes}};
  if (tuner != nullptr) {
    row["buckets"] = tuner->report().num_buckets;
    row["communication_bound_ms"] = tuner->report().bound_ms;
    row["bus_gb_per_s"] = tuner->report().gb_per_second;
  }
  if (flags.json) {
    row["step_ends_s"] = m.step_ends_s;
    return PrintJsonLine(row);
  }
  for (const auto& [key, value] : row.items()) {
    if (value.is_number_float()) {
      fmt::print("{:<26} {:.2f}\n", key, value.get<double>());
    } else {
      fmt::print("{:<26} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

// The kinds that the oneDNN backend leaves to the library's primitives (batch norm and elementwise
// kernels are ours).
bool IsPrimitive(OpKind kind) {
  switch (kind) {
    case OpKind::kConv2d:
    case OpKind::kConv2dBackwardData:
    case OpKind::kConv2dBackwardFilter:
    case OpKind::kLinear:
    case OpKind::kLinearBackwardData:
    case OpKind::kLinearBackwardFilter:
    case OpKind::kPool2d:
    case OpKind::kPool2dBackward:
    case OpKind::kReorder:
    case OpKind::kCasts:
      return true;
    default:
      return false;
  }
}

// On standard error when standard output is for machines.
void PrintProfile(const BenchFlags& flags, const Job& job, const Executable& executable,
                  double step_ms) {
  FILE* out = flags.json ? stderr : stdout;
  std::vector<OpTime> times = executable.Times();
  std::sort(times.begin(), times.end(),
            [](const OpTime& a, const OpTime& b) { return a.milliseconds > b.milliseconds; });
  double kernels = 0, primitives = 0;
  fmt::print(out, "\n{:<28}{:<10}{:>12}{:>10}\n", "operation", "phase", "ms a step", "share");
  for (const OpTime& time : times) {
    const double ms = time.milliseconds / flags.steps;
    kernels += ms;
    if (IsPrimitive(time.kind)) primitives += ms;
    fmt::print(out, "{:<28}{:<10}{:>12.3f}{:>9.1f}%\n", Name(time.kind),
               time.phase == Phase::kForward ? "forward" : "backward", ms, 100 * ms / step_ms);
  }
  fmt::print(out, "{:<38}{:>12.3f}{:>9.1f}%\n", "all kernels", kernels, 100 * kernels / step_ms);
  if (job.backend().name() == "onednn")
    fmt::print(out, "{:<38}{:>12.3f}{:>9.1f}%\n", "oneDNN primitives", primitives,
               100 * primitives / step_ms);
}

// What the net is fed: the data set's images, or else random ones in the net's own form.
struct BenchInput {
  nets::ModelOptions model;
  std::unique_ptr<io::BatchSource> source;
};

BenchInput MakeInput(const BenchFlags& flags, const Job& job, const StepShape& shape) {
  BenchInput input;
  if (!flags.dataset.dataset_dir.empty()) {
    const NetInput data = ResolveNetInput(flags.net, flags.dataset);
    io::PipelineOptions options =
        MakePipelineOptions(flags.dataset, data, job, shape.local_batch());
    options.training = options.shuffle = options.repeat = true;
    options.dtype = data.training_dtype();
    input.model = MakeModelOptions(data, shape.graph_batch);
    input.model.normalize = data.normalize;
    input.source = io::MakePipeline(options);
  } else {
    const nets::NetEntry& net = nets::FindNet(flags.net.model_name);
    input.model.batch_size = shape.graph_batch;
    input.model.image_size = flags.net.image_size > 0 ? flags.net.image_size : net.image_size;
    const auto size = static_cast<int>(input.model.image_size);
    const bool is_bytes = flags.dataset.input_dtype == Name(DType::kU8);
    if (is_bytes)
      input.model.normalize = {.subtract = {127.5f, 127.5f, 127.5f}, .multiply = 1 / 127.5f};
    input.source = io::MakeSyntheticBatches({.local_batch = shape.local_batch(),
                                             .height = size,
                                             .width = size,
                                             .channels = static_cast<int>(net.channels),
                                             .dtype = is_bytes ? DType::kU8 : DType::kF32,
                                             .num_classes = static_cast<int>(net.num_classes),
                                             .rank = job.rank(),
                                             .size = job.size()});
  }
  input.model.training = true;
  return input;
}

int Run(const BenchFlags& flags, Job& job) {
  const StepShape shape = MakeStepShape(flags.ranks, flags.batch_size, job.size());
  const BenchInput input = MakeInput(flags, job, shape);
  nets::Model model = nets::BuildModel(nets::FindNet(flags.net.model_name), input.model);
  train::StepOptions options{.optimizer = "momentum"};
  SetStepOptions(flags.ranks, flags.machine, shape, options);
  SetMemory(flags.activation_memory, job, *model.graph, options);
  if (flags.profile) options.replay = false;  // it shows kernel by kernel
  options.connect_devices = [&job] { job.ConnectDevices(); };
  const auto step = MakeDeviceOwned<train::TrainStep>(job, std::move(model.graph), job.backend(),
                                                      job.communicator(), options);
  step->store().Initialize(1);
  if (flags.profile) step->executable().WaitForKernels();
  const Measurement measurement = Measure(flags, shape.local_batch(), job, *step, *input.source);
  if (!job.is_chief()) return 0;
  Print(flags, job, input.model, measurement, step->bucket_tuner());
  if (flags.profile) PrintProfile(flags, job, step->executable(), measurement.step_ms_median);
  return 0;
}

}  // namespace

int BenchTrain(const Arguments& arguments) {
  BenchFlags flags;
  CommandLine line("carole bench train",
                   "Speed of training steps, alone or under mpirun; on synthetic images, unless "
                   "--dataset_dir names others.");
  AddDatasetFlags(line, flags.dataset);
  AddInputFlags(line, flags.dataset);
  AddNetFlags(line, flags.net);
  AddMachineFlags(line, flags.machine);
  AddActivationMemoryFlag(line, flags.activation_memory);
  AddCollectiveFlags(line, flags.machine);
  AddRankFlags(line, flags.ranks);
  line.Group("Benchmark");
  line.AddPositive("batch_size", flags.batch_size, "images of a step, of each rank");
  line.AddPositive("steps", flags.steps, "that are timed");
  line.AddNonNegative("warmup_steps", flags.warmup_steps, "before them");
  line.AddBool("json", flags.json, "one JSON object a line");
  line.AddBool("profile", flags.profile, "time by kind of operation");
  if (!line.Parse(arguments)) return 0;
  SetMachineFlags(flags.ranks, flags.machine);
  return RunJob(flags.machine, [&](Job& job) { return Run(flags, job); });
}

}  // namespace carole::commands
