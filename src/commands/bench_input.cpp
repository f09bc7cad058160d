// carole bench input: how fast records become batches, and what bound libjpeg alone sets.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "io/example.h"
#include "io/image.h"
#include "io/pipeline.h"
#include "io/record_index.h"
#include "io/tfrecord.h"
#include "src/commands/commands.h"
#include "src/commands/inputs.h"
#include "src/commands/job.h"

namespace carole::commands {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The encoded images of the first records; fewer than `count` when the split is small.
std::vector<std::string> LoadJpegs(const DatasetFlags& flags, int64_t count) {
  const io::DatasetEntry& dataset = io::FindDataset(flags.dataset_name);
  std::vector<std::string> jpegs;
  for (const auto& shard : io::FindShards(dataset, flags.dataset_split_name, flags.dataset_dir)) {
    const std::unique_ptr<io::Source> source = io::OpenRecords(shard);
    io::TfRecordReader reader(*source);
    while (static_cast<int64_t>(jpegs.size()) < count) {
      const auto record = reader.Next();
      if (!record) break;
      io::FeatureQuery query[] = {{"image/encoded"}};
      io::FindFeatures(*record, query);
      const auto bytes = io::FirstBytes(query[0]);
      if (bytes && io::IsJpeg(*bytes)) jpegs.emplace_back(*bytes);
    }
  }
  return jpegs;
}

// Whole pictures, nothing else, on the same number of threads; 0 when the data set has no JPEGs.
double FullDecodeRate(const std::vector<std::string>& jpegs, int threads) {
  if (jpegs.empty()) return 0;
  std::atomic<size_t> next{0};
  const Clock::time_point start = Clock::now();
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&] {
        io::Image image;
        for (size_t i; (i = next++) < jpegs.size();) io::DecodeJpeg(jpegs[i], 3, &image);
      });
    }
  }
  return static_cast<double>(jpegs.size()) / SecondsSince(start);
}

struct InputSpeed {
  double images_per_second = 0;
  io::InputCounters counters;  // of the measured batches
};

InputSpeed Measure(io::BatchSource& source, int64_t local_batch, int64_t warmup_steps,
                   int64_t steps) {
  for (int64_t i = 0; i < warmup_steps; ++i) source.Next();
  const io::InputCounters before = source.counters();
  const Clock::time_point start = Clock::now();
  for (int64_t i = 0; i < steps; ++i) source.Next();
  InputSpeed speed{static_cast<double>(steps * local_batch) / SecondsSince(start),
                   source.counters()};
  speed.counters.images -= before.images;
  speed.counters.read_ms -= before.read_ms;
  speed.counters.parse_ms -= before.parse_ms;
  speed.counters.decode_ms -= before.decode_ms;
  speed.counters.augment_ms -= before.augment_ms;
  return speed;
}

void Print(const nlohmann::ordered_json& row, bool json) {
  if (json) {
    fmt::print("{}\n", row.dump());
    return;
  }
  for (const auto& [key, value] : row.items()) fmt::print("{:<40} {}\n", key, value.dump());
}

}  // namespace

int BenchInput(const Arguments& arguments) {
  DatasetFlags dataset;
  NetFlags net{.model_name = "lenet"};
  MachineFlags machine;
  int64_t batch_size = 32, steps = 100, warmup_steps = 10;
  int threads = 0;
  bool json = false;
  CommandLine line("carole bench input", "Speed of reading, decoding and augmenting a data set.");
  AddDatasetFlags(line, dataset);
  AddNetFlags(line, net);
  line.Group("Benchmark");
  line.Add("batch_size", batch_size, "images of a batch")->check(CLI::PositiveNumber);
  line.Add("steps", steps, "batches that are timed")->check(CLI::PositiveNumber);
  line.Add("warmup_steps", warmup_steps, "batches before")->check(CLI::NonNegativeNumber);
  line.Add("threads", threads, "that decode; the default is --num_preprocessing_threads");
  line.AddBool("json", json, "one JSON object a line");
  AddCollectiveFlags(line, machine);
  if (!line.Parse(arguments)) return 0;
  if (threads > 0) dataset.num_preprocessing_threads = threads;

  return RunJob(machine, [&](Job& job) {
    const NetInput input = ResolveNetInput(net, dataset);
    io::PipelineOptions options = MakePipelineOptions(dataset, input, job, batch_size);
    options.training = options.shuffle = options.repeat = true;
    const std::unique_ptr<io::BatchSource> source = io::MakePipeline(options);
    const InputSpeed mine = Measure(*source, batch_size, warmup_steps, steps);
    double sums[] = {mine.images_per_second,
                     FullDecodeRate(LoadJpegs(dataset, std::min<int64_t>(512, steps * batch_size)),
                                    options.threads)};
    job.communicator().AllReduce(std::span<double>(sums), {.what = "speed"});
    if (!job.is_chief()) return 0;
    const double images = static_cast<double>(std::max<int64_t>(1, mine.counters.images));
    Print({{"threads", options.threads},
           {"ranks", job.size()},
           {"images_per_second", sums[0]},
           {"read_ms", mine.counters.read_ms / images},
           {"parse_ms", mine.counters.parse_ms / images},
           {"decode_ms", mine.counters.decode_ms / images},
           {"augment_ms", mine.counters.augment_ms / images},
           {"libjpeg_full_decode_images_per_second", sums[1]}},
          json);
    return 0;
  });
}

}  // namespace carole::commands
