// carole bench train: measures training steps on synthetic images or on a data set, and where their
// time goes.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>

#include "io/pipeline/synthetic_batches.h"
#include "nets/nets.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/pool2d.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/flags/step_flags.h"
#include "src/commands/setup/inputs.h"
#include "src/commands/setup/make_step.h"
#include "src/commands/setup/rank_context.h"
#include "src/core/stopwatch.h"
#include "src/train/loop/device_memory.h"
#include "src/train/step/train_step.h"

namespace carole::commands {
namespace {

struct TrainBenchFlags {
  DataConfig dataset = MakeDataConfig("imagenet", "train");
  NetConfig net{.model_name = "resnet_v1_50"};
  MachineConfig machine;
  train::StepOptions step = DefaultStepOptions();
  int64_t reproducible_shards = 8;
  std::string activation_memory;
  int64_t batch_size = 32;
  int steps = 20;
  int warmup_steps = 5;
  bool json = false;
  bool profile = false;
};

// Values are means over steps unless their names say otherwise.
struct Measurement {
  double step_ms_median = 0;
  double step_ms_p90 = 0;
  double images_per_second = 0;  // of all ranks together
  enum Part { kInput, kForward, kBackward, kExposed, kOptimizer, kParts };
  double part_ms[kParts] = {};           // mean over ranks as well
  double agreement_ms = 0;               // time of the consistency checks before collectives
  std::vector<double> step_ends_s;       // seconds on the monotonic clock of this machine
  int64_t peak_rss_bytes = 0;            // maximum over ranks
  std::vector<MemoryUse> device_memory;  // of each rank; empty without devices
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

// Returns the time of a barrier. It consists only of the consistency check that precedes every
// collective.
double BarrierMs(collectives::Communicator& communicator) {
  constexpr int kBarriers = 200;
  Stopwatch watch;
  for (int i = 0; i < kBarriers; ++i) communicator.Barrier({.what = "time of a barrier"});
  return watch.Lap() / kBarriers;
}

Measurement Measure(const TrainBenchFlags& flags, int64_t local_batch, RankContext& context,
                    train::TrainStep& step, io::BatchSource& source) {
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
  const double barrier_ms = BarrierMs(context.communicator());
  const auto num_collectives =
      std::make_shared<std::atomic<int>>(0);  // counted by the engine's thread
  context.diagnostics().SetObserver(
      [num_collectives](const collectives::CollectiveRecord&) { ++*num_collectives; });
  const double start_s = SteadySeconds();
  for (int i = 0; i < flags.steps; ++i) {
    const train::StepResult r = run();
    result.step_ends_s.push_back(SteadySeconds());
    const double parts[] = {r.input_ms, r.forward_ms, r.backward_ms, r.exposed_communication_ms,
                            r.optimizer_ms};
    for (int p = 0; p < Measurement::kParts; ++p)
      result.part_ms[p] += parts[p] / flags.steps / context.size();
  }
  while (step.num_in_flight() > 0) step.End();
  result.agreement_ms = barrier_ms * *num_collectives / flags.steps;
  context.communicator().AllReduce(std::span<double>(result.part_ms), {.what = "times"});
  result.images_per_second = static_cast<double>(flags.steps * local_batch * context.size()) /
                             (result.step_ends_s.back() - start_s);
  std::vector<double> seconds = result.step_ends_s;
  std::adjacent_difference(seconds.begin(), seconds.end(), seconds.begin());
  seconds.front() -= start_s;
  std::sort(seconds.begin(), seconds.end());
  result.step_ms_median = 1e3 * seconds[seconds.size() / 2];
  result.step_ms_p90 = 1e3 * seconds[seconds.size() * 9 / 10];
  result.peak_rss_bytes = PeakRssOverRanks(context.communicator());
  result.device_memory = train::GatherDeviceMemory(context.communicator(), step);
  return result;
}

void Print(const TrainBenchFlags& flags, const RankContext& context,
           const nets::ModelOptions& input, const Measurement& m,
           const collectives::BucketTuner* tuner) {
  const int decode_threads =
      flags.dataset.pipeline.dataset_dir.empty() ? 0 : DecodeThreads(flags.dataset, context);
  nlohmann::ordered_json row{{"net", flags.net.model_name},
                             {"batch_size", flags.batch_size},
                             {"image_size", input.image_size},
                             {"precision", Name(flags.machine.precision)},
                             {"input_dtype", input.normalize ? "uint8" : "fp32"},
                             {"backend", context.backend().name()},
                             {"ranks", context.size()},
                             {"threads", context.backend().threads()},
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
  for (const MemoryUse& rank : m.device_memory) {
    row["device_memory_used_bytes"].push_back(rank.used_bytes);
    row["device_memory_total_bytes"].push_back(rank.total_bytes);
  }
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

// Whether the oneDNN backend computes operations of this kind with the library's primitives. Batch
// norm and elementwise kernels are our own.
bool IsPrimitive(OpKind kind) {
  static constexpr OpKind kPrimitives[] = {
      op::kConv2d, op::kConv2dBackwardData, op::kConv2dBackwardFilter,
      op::kLinear, op::kLinearBackwardData, op::kLinearBackwardFilter,
      op::kPool2d, op::kPool2dBackward,     op::kReorder,
      op::kCasts};
  return std::ranges::find(kPrimitives, kind) != std::end(kPrimitives);
}

// Prints the time by kind of operation, to standard error if standard output is JSON.
void PrintProfile(const TrainBenchFlags& flags, const RankContext& context,
                  const Executable& executable, double step_ms) {
  FILE* out = flags.json ? stderr : stdout;
  std::vector<OpTime> times = executable.Times();
  std::sort(times.begin(), times.end(),
            [](const OpTime& a, const OpTime& b) { return a.milliseconds > b.milliseconds; });
  double kernels = 0, primitives = 0;
  fmt::print(out, "\n{:<28}{:<10}{:>12}{:>10}\n", "operation", "phase", "ms per step", "share");
  for (const OpTime& time : times) {
    const double ms = time.milliseconds / flags.steps;
    kernels += ms;
    if (IsPrimitive(time.kind)) primitives += ms;
    fmt::print(out, "{:<28}{:<10}{:>12.3f}{:>9.1f}%\n", Name(time.kind),
               time.phase == Phase::kForward ? "forward" : "backward", ms, 100 * ms / step_ms);
  }
  fmt::print(out, "{:<38}{:>12.3f}{:>9.1f}%\n", "all kernels", kernels, 100 * kernels / step_ms);
  if (context.backend().name() == "onednn")
    fmt::print(out, "{:<38}{:>12.3f}{:>9.1f}%\n", "oneDNN primitives", primitives,
               100 * primitives / step_ms);
}

// The input of the net: images of the data set if one is given, else synthetic ones of the net's
// size.
struct BenchInput {
  nets::ModelOptions model;
  std::unique_ptr<io::BatchSource> source;
};

BenchInput MakeInput(const TrainBenchFlags& flags, const RankContext& context,
                     const StepShape& shape) {
  BenchInput input;
  if (!flags.dataset.pipeline.dataset_dir.empty()) {
    const NetInput data = ResolveNetInput(flags.net, flags.dataset);
    io::PipelineOptions options =
        MakePipelineOptions(flags.dataset, data, context, shape.local_batch());
    SetTraining(data, options);
    input.model = MakeTrainingModelOptions(data, shape.graph_batch);
    input.source = io::MakePipeline(options);
  } else {
    const nets::NetEntry& net = nets::FindNet(flags.net.model_name);
    input.model.batch_size = shape.graph_batch;
    input.model.image_size =
        flags.net.model.image_size > 0 ? flags.net.model.image_size : net.image_size;
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
                                             .rank = context.rank(),
                                             .size = context.size()});
  }
  input.model.training = true;
  return input;
}

int MeasureOnRank(const TrainBenchFlags& flags, RankContext& context) {
  const StepShape shape =
      MakeStepShape(flags.step, flags.reproducible_shards, flags.batch_size, context.size());
  const BenchInput input = MakeInput(flags, context, shape);
  nets::Model model = nets::BuildModel(nets::FindNet(flags.net.model_name), input.model);
  train::StepOptions options = flags.step;
  options.optimizer = "momentum";
  options.accumulation_steps = shape.micro_batches;
  if (flags.profile) options.replay = false;  // a replayed graph has no times of single kernels
  const auto step = MakeStep(context, std::move(model.graph), options, flags.activation_memory);
  step->store().Initialize(1);
  if (flags.profile) step->executable().SynchronizeAfterEachKernel();
  const Measurement measurement =
      Measure(flags, shape.local_batch(), context, *step, *input.source);
  if (!context.is_chief()) return 0;
  Print(flags, context, input.model, measurement, step->bucket_tuner());
  if (flags.profile) PrintProfile(flags, context, step->executable(), measurement.step_ms_median);
  return 0;
}

}  // namespace

int BenchTrain(const Arguments& arguments) {
  TrainBenchFlags flags;
  CommandLine line("carole bench train",
                   "Measures the speed of training steps, alone or under mpirun, on synthetic "
                   "images unless --dataset_dir is given.",
                   {"carole bench train --model_name=resnet_v1_50 --batch_size=64",
                    "mpirun -np 4 carole bench train --profile"});
  AddDatasetFlags(line, flags.dataset, DatasetDir::kOptional);
  AddInputFlags(line, flags.dataset);
  AddNetFlags(line, flags.net);
  AddMachineFlags(line, flags.machine);
  AddActivationMemoryFlag(line, flags.activation_memory);
  AddCollectiveFlags(line, flags.machine);
  AddStepFlags(line, flags.step, flags.reproducible_shards);
  line.Group("Benchmark");
  constexpr HelpLevel kBasic = HelpLevel::kBasic;
  line.AddPositive("batch_size", flags.batch_size, "Images per step on each rank.", kBasic);
  line.AddPositive("steps", flags.steps, "Steps that are timed.", kBasic);
  line.AddNonNegative("warmup_steps", flags.warmup_steps, "Steps before the timed ones.", kBasic);
  line.Add("json", flags.json, "Print one JSON object per line.", kBasic);
  line.Add("profile", flags.profile, "Print the time by kind of operation as well.", kBasic);
  if (!line.Parse(arguments)) return 0;
  ResolveStep(flags.step, flags.machine);
  return RunAsRank(flags.machine,
                   [&](RankContext& context) { return MeasureOnRank(flags, context); });
}

}  // namespace carole::commands
