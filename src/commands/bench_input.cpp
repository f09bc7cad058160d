// carole bench input: measures how fast records become batches and where the time goes. For
// comparison it measures in the same run how fast libjpeg-turbo alone decodes the same images.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "io/image/image.h"
#include "io/image/jpeg.h"
#include "io/pipeline/pipeline.h"
#include "io/records/example.h"
#include "io/records/tfrecord.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/flags/step_flags.h"
#include "src/commands/setup/inputs.h"
#include "src/commands/setup/rank_context.h"
#include "src/core/parallel.h"
#include "src/core/stopwatch.h"

namespace carole::commands {
namespace {

using Clock = std::chrono::steady_clock;

struct InputBenchFlags {
  DataConfig dataset = MakeDataConfig("imagenet", "train");
  NetConfig net{.model_name = "resnet_v1_50"};
  MachineConfig machine;
  int64_t batch_size = 32;
  int64_t steps = 50, warmup_steps = 0;
  int rounds = 5;
  int threads = 0;
  bool eval = false;
  bool json = false;
};

// Returns the CPU time of all threads of this process. It is steadier than wall time if other
// programs use the same cores.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Rate {
  double wall = 0;  // items per second
  double cpu = 0;   // items per CPU second
};

// Returns the encoded images of the first records: `count`, or fewer if the split is small.
std::vector<std::string> LoadJpegs(const DataConfig& flags, int64_t count) {
  const io::DatasetEntry& dataset = io::FindDataset(flags.dataset_name);
  std::vector<std::string> jpegs;
  for (const auto& shard :
       io::FindShards(dataset, flags.pipeline.split, flags.pipeline.dataset_dir)) {
    const std::unique_ptr<Source> source = io::OpenRecords(shard);
    io::TfRecordReader reader(*source);
    while (static_cast<int64_t>(jpegs.size()) < count) {
      const auto record = reader.Next();
      if (!record) break;
      io::FeatureQuery query[] = {{"image/encoded"}};
      io::FindFeatures(*record, query);
      const auto bytes = io::SingleBytes(query[0]);
      if (bytes && io::IsJpeg(*bytes)) jpegs.emplace_back(*bytes);
    }
  }
  return jpegs;
}

Rate MeasureRate(size_t count, int threads, const std::function<void(int64_t)>& work) {
  const double cpu_start = CpuSeconds();
  const Clock::time_point start = Clock::now();
  ParallelFor(static_cast<int64_t>(count), threads, work);
  const auto items = static_cast<double>(count);
  return {items / SecondsSince(start), items / (CpuSeconds() - cpu_start)};
}

// Returns the rate of decoding whole images with libjpeg-turbo; 0 if the data set has no JPEGs.
Rate FullDecodeRate(const std::vector<std::string>& jpegs, int threads, io::DctMethod method) {
  if (jpegs.empty()) return {};
  return MeasureRate(jpegs.size(), threads, [&](int64_t i) {
    thread_local io::Image image;
    thread_local io::JpegDecoder decoder;
    decoder.Open(jpegs[i], {.dct_method = method, .only_libjpeg = true});
    decoder.Decode({.height = decoder.height(), .width = decoder.width()}, &image);
  });
}

// Returns the rate in bytes of reading whole shards and checking every checksum.
Rate ReadRate(const DataConfig& flags, int threads) {
  const io::DatasetEntry& dataset = io::FindDataset(flags.dataset_name);
  const auto shards = io::FindShards(dataset, flags.pipeline.split, flags.pipeline.dataset_dir);
  std::atomic<int64_t> bytes{0};
  const Rate shards_read = MeasureRate(shards.size(), threads, [&](int64_t i) {
    const std::unique_ptr<Source> source = io::OpenRecords(shards[i]);
    io::TfRecordReader reader(*source);
    int64_t shard_bytes = 0;
    while (const auto record = reader.Next()) shard_bytes += static_cast<int64_t>(record->size());
    bytes += shard_bytes;
  });
  const double shard_bytes = static_cast<double>(bytes) / static_cast<double>(shards.size());
  return {shard_bytes * shards_read.wall, shard_bytes * shards_read.cpu};
}

// The results of one round.
struct Round {
  Rate images;
  Rate full_decode;
  Rate read;                                                        // bytes
  double read_ms = 0, parse_ms = 0, decode_ms = 0, augment_ms = 0;  // of one thread, per image
};

// Waits until the threads of the source have filled its ring of batches and sleep.
void WaitUntilIdle(const io::BatchSource& source) {
  using namespace std::chrono_literals;
  for (int64_t images = -1; images != source.counters().images;) {
    images = source.counters().images;
    std::this_thread::sleep_for(50ms);
  }
}

Round Measure(io::BatchSource& source, int depth, int64_t steps) {
  WaitUntilIdle(source);
  for (int i = 0; i < depth; ++i) source.Next();  // these are ready and would cost no time
  const io::InputCounters before = source.counters();
  const double cpu_start = CpuSeconds();
  const Clock::time_point start = Clock::now();
  for (int64_t i = 0; i < steps; ++i) source.Next();
  const double seconds = SecondsSince(start);
  const double cpu_seconds = CpuSeconds() - cpu_start;
  const io::InputCounters after = source.counters();
  WaitUntilIdle(source);  // nothing else may run while libjpeg-turbo is measured
  const auto images = static_cast<double>(std::max<int64_t>(1, after.images - before.images));
  return {.images = {images / seconds, images / cpu_seconds},
          .read_ms = (after.read_ms - before.read_ms) / images,
          .parse_ms = (after.parse_ms - before.parse_ms) / images,
          .decode_ms = (after.decode_ms - before.decode_ms) / images,
          .augment_ms = (after.augment_ms - before.augment_ms) / images};
}

template <typename What>
double MedianOf(const std::vector<Round>& rounds, const What& what) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(what(round));
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
double Median(const std::vector<Round>& rounds, double Round::*what) {
  return MedianOf(rounds, [&](const Round& round) { return round.*what; });
}
double Median(const std::vector<Round>& rounds, Rate Round::*what, double Rate::*clock) {
  return MedianOf(rounds, [&](const Round& round) { return (round.*what).*clock; });
}

void Print(const InputBenchFlags& flags, const io::PipelineOptions& options, int ranks,
           const std::vector<Round>& rounds, double images, double full_decode) {
  const auto rounded = [](double value) { return std::round(value * 1e4) / 1e4; };
  const double cores = static_cast<double>(options.threads) * ranks;
  const nlohmann::ordered_json row{
      {"preprocessing", options.preprocessing->name},
      {"image_size", options.height},
      {"training", options.training},
      {"input_dtype", Name(options.dtype)},
      {"ranks", ranks},
      {"threads", options.threads},
      {"images_per_second", rounded(images)},
      {"images_per_second_per_core", rounded(images / cores)},
      {"images_per_cpu_second", rounded(Median(rounds, &Round::images, &Rate::cpu))},
      {"read_ms", rounded(Median(rounds, &Round::read_ms))},
      {"parse_ms", rounded(Median(rounds, &Round::parse_ms))},
      {"decode_ms", rounded(Median(rounds, &Round::decode_ms))},
      {"augment_ms", rounded(Median(rounds, &Round::augment_ms))},
      {"libjpeg_full_decode_images_per_second", rounded(full_decode)},
      {"libjpeg_full_decode_images_per_cpu_second",
       rounded(Median(rounds, &Round::full_decode, &Rate::cpu))},
      {"of_full_decode", full_decode > 0 ? rounded(images / full_decode) : 0},
      {"read_with_crc_gb_per_second", rounded(1e-9 * Median(rounds, &Round::read, &Rate::wall))},
      {"read_with_crc_gb_per_cpu_second",
       rounded(1e-9 * Median(rounds, &Round::read, &Rate::cpu))}};
  if (flags.json) return PrintJsonLine(row);
  for (const auto& [key, value] : row.items()) fmt::print("{:<40} {}\n", key, value.dump());
}

int MeasureOnRank(const InputBenchFlags& flags, RankContext& context) {
  CheckSize("batch_size", flags.batch_size);
  const NetInput input = ResolveNetInput(flags.net, flags.dataset);
  io::PipelineOptions options =
      MakePipelineOptions(flags.dataset, input, context, flags.batch_size);
  if (flags.threads > 0) options.threads = flags.threads;
  options.shuffle = options.repeat = true;
  if (!flags.eval) SetTraining(input, options);
  const std::vector<std::string> jpegs =
      LoadJpegs(flags.dataset, std::min<int64_t>(512, flags.steps * flags.batch_size));
  const std::unique_ptr<io::BatchSource> source = io::MakePipeline(options);
  for (int64_t i = 0; i < flags.warmup_steps; ++i) (void)source->Next();
  std::vector<Round> rounds;
  for (int i = 0; i < flags.rounds; ++i) {
    Round round = Measure(*source, options.depth, flags.steps);
    round.full_decode = FullDecodeRate(jpegs, options.threads, options.dct_method);
    round.read = ReadRate(flags.dataset, options.threads);
    rounds.push_back(round);
  }
  double sums[] = {Median(rounds, &Round::images, &Rate::wall),
                   Median(rounds, &Round::full_decode, &Rate::wall)};
  context.communicator().AllReduce(std::span<double>(sums), {.what = "speed"});
  if (context.is_chief()) Print(flags, options, context.size(), rounds, sums[0], sums[1]);
  return 0;
}

}  // namespace

int BenchInput(const Arguments& arguments) {
  InputBenchFlags flags;
  CommandLine line("carole bench input",
                   "Measures the speed of reading, decoding and augmenting a data set, and for "
                   "comparison that of libjpeg-turbo alone.",
                   {"carole bench input --dataset_name=imagenet --dataset_dir=DATA",
                    "carole bench input --dataset_name=flowers --dataset_dir=DATA --eval --json"});
  AddDatasetFlags(line, flags.dataset);
  AddInputFlags(line, flags.dataset);
  AddNetFlags(line, flags.net);
  line.Group("Benchmark");
  constexpr HelpLevel kBasic = HelpLevel::kBasic;
  line.AddPositive("batch_size", flags.batch_size, "Images per batch.", kBasic);
  line.AddPositive("steps", flags.steps, "Batches per round.", kBasic);
  line.AddNonNegative("warmup_steps", flags.warmup_steps, "Batches before the first round.",
                      kBasic);
  line.AddPositive("rounds", flags.rounds,
                   "Rounds, in each of which everything is measured; medians are printed.", kBasic);
  line.AddNonNegative("threads", flags.threads,
                      "Threads that decode; 0: see --num_preprocessing_threads.", kBasic);
  line.Add("eval", flags.eval, "Preprocess images as for evaluation.", kBasic);
  line.Add("json", flags.json, "Print one JSON object per line.", kBasic);
  AddCollectiveFlags(line, flags.machine);
  if (!line.Parse(arguments)) return 0;
  return RunAsRank(flags.machine,
                   [&](RankContext& context) { return MeasureOnRank(flags, context); });
}

}  // namespace carole::commands
