#include "src/commands/setup/evaluation.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "collectives/ranks/rank_local_work.h"
#include "io/checkpoint/checkpoint.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/core/text/parse_number.h"
#include "src/train/evaluation/evaluate.h"
#include "src/train/loop/epoch_ledger.h"
#include "src/train/state/moving_statistics.h"

namespace carole::commands {
namespace {

// Ends another source after the first `count` samples of all ranks together, and counts the bad
// records that were skipped.
class FirstSamples : public io::BatchSource {
 public:
  // `offset`: the index of this rank's first sample in a batch of all ranks.
  FirstSamples(std::unique_ptr<io::BatchSource> source, int64_t count, int64_t offset)
      : source_(std::move(source)), count_(count), offset_(offset) {}

  const io::Batch* Next() override {
    // Does not read records beyond the end: they may be damaged.
    if (batch_.next_position + offset_ >= count_) return nullptr;
    const io::Batch* next = source_->Next();
    if (next == nullptr) return nullptr;
    batch_ = *next;
    batch_.valid = std::min(batch_.valid, count_ - batch_.first_sample);
    return &batch_;
  }
  int64_t num_samples() const override { return source_->num_samples(); }
  int64_t skipped() const { return batch_.counts.num_skipped(); }

 private:
  std::unique_ptr<io::BatchSource> source_;
  const int64_t count_, offset_;
  io::Batch batch_;
};

// Ranks take records in turn in batches of one size, so they must agree on it. Their batches differ
// if hosts have different numbers of ranks.
int64_t MinOverRanks(int64_t local_batch, const RankContext& context) {
  return std::ranges::min(
      AllGather(context.communicator(), local_batch, {.what = "evaluation batch"}));
}

// Returns a batch whose activations need about `max_bytes`, given that those of `batch` need
// `bytes`. Returns `batch` if it fits, else a smaller one.
int64_t LargestBatchWithin(size_t max_bytes, int64_t batch, size_t bytes) {
  if (bytes <= max_bytes || batch == 1) return batch;
  const auto share = static_cast<double>(max_bytes) / static_cast<double>(bytes);
  return std::clamp(static_cast<int64_t>(share * static_cast<double>(batch)), int64_t{1},
                    batch - 1);
}

}  // namespace

Evaluation::Evaluation(const DataConfig& dataset, const NetInput& input, const RankContext& context,
                       int64_t local_batch, VariableStore* share, size_t max_bytes)
    : dataset_(dataset),
      input_(input),
      context_(context),
      local_batch_(MinOverRanks(local_batch, context)) {
  (void)CountSamples(dataset, input, context);
  constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  max_bytes = std::min(max_bytes > 0 ? max_bytes : kNoLimit,
                       context.backend().FreeBytes().value_or(kNoLimit));
  for (const int64_t given = local_batch_;;) {
    nets::Model model = nets::BuildModel(*input.net, MakeModelOptions(input, local_batch_));
    statistics_decay_ = train::StatisticsDecay(*model.graph);
    collectives::RunRankLocal(context.communicator(), "plans", [&] {
      inference_.reset();
      inference_ = std::make_unique<train::Inference>(std::move(model.graph), model.logits,
                                                      context.backend(), share);
    });
    const int64_t fits = MinOverRanks(
        LargestBatchWithin(max_bytes, local_batch_, inference_->activation_bytes()), context);
    if (fits == local_batch_) {
      if (fits < given)
        LogInfo("memory", "evaluation uses batches of {} images to stay within its memory limit",
                fits);
      break;
    }
    local_batch_ = fits;
  }
  inference_->Bind();
}

std::optional<train::Metrics> Evaluation::Run(int64_t max_samples,
                                              const std::function<bool()>& stop_requested) {
  const int64_t count = max_samples > 0 ? max_samples : std::numeric_limits<int64_t>::max();
  std::unique_ptr<FirstSamples> source;
  collectives::RunRankLocal(context_.communicator(), "evaluation data", [&] {
    source = std::make_unique<FirstSamples>(
        io::MakePipeline(MakePipelineOptions(dataset_, input_, context_, local_batch_)), count,
        context_.rank() * local_batch_);
  });
  auto metrics = train::Evaluate(*inference_, *source, context_.communicator(),
                                 context_.diagnostics(), stop_requested);
  if (metrics && dataset_.pipeline.max_bad_records > 0) {
    int64_t skipped = 0;
    for (const int64_t count_of_rank :
         AllGather(context_.communicator(), source->skipped(), {.what = "bad records"}))
      skipped += count_of_rank;
    train::RequireFewSkipped(skipped, dataset_.pipeline.max_bad_records);
  }
  return metrics;
}

std::vector<std::string> NetClassNames(const io::DatasetEntry& dataset,
                                       const std::filesystem::path& dataset_dir,
                                       int64_t labels_offset, int64_t num_classes) {
  const std::vector<std::string> label_names = io::ClassNames(dataset, dataset_dir);
  const auto num_labels = static_cast<int64_t>(label_names.size());
  std::vector<std::string> names;
  for (int64_t label = labels_offset; label < labels_offset + num_classes; ++label) {
    const bool is_class = label >= 0 && label < num_labels;
    names.push_back(is_class ? label_names[label] : std::to_string(label));
  }
  return names;
}

std::vector<std::string> NetClassNames(const DataConfig& dataset, const NetInput& input) {
  return NetClassNames(*input.dataset, dataset.pipeline.dataset_dir, dataset.pipeline.labels_offset,
                       input.num_classes);
}

std::vector<std::string> SplitClassNames(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream lines(text);
  for (std::string name; std::getline(lines, name);) names.push_back(name);
  return names;
}

train::RunMetadata MakeDataMetadata(const DataConfig& dataset, const NetInput& input) {
  return {{train::kDataset, std::string(input.dataset->name)},
          {train::kImageSize, std::to_string(input.image_size)},
          {train::kChannels, std::to_string(input.channels)},
          {train::kNumClasses, std::to_string(input.num_classes)},
          {train::kLabelsOffset, std::to_string(dataset.pipeline.labels_offset)},
          {train::kPreprocessing, input.preprocessing},
          {train::kDctMethod, Name(dataset.pipeline.dct_method)},
          {train::kDctScaling, dataset.pipeline.dct_scaling ? "1" : "0"},
          {train::kClassNames, JoinTexts(NetClassNames(dataset, input), "\n")}};
}

bool HasRecords(const io::SplitEntry& split, const std::filesystem::path& dataset_dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dataset_dir, error)) return true;
  const std::filesystem::directory_iterator files(dataset_dir, error);
  return std::any_of(begin(files), end(files), [&](const auto& file) {
    return io::MatchesSplit(split, file.path().filename().string());
  });
}

std::string DefaultEvaluationSplit(const io::DatasetEntry& dataset,
                                   const std::filesystem::path& dataset_dir,
                                   const std::string& trained) {
  std::string unbuilt;
  for (const io::SplitEntry& split : dataset.splits) {
    if (split.name == trained) continue;
    if (HasRecords(split, dataset_dir)) return std::string(split.name);
    if (unbuilt.empty()) unbuilt = split.name;
  }
  const bool is_built = std::ranges::any_of(dataset.splits, [&](const io::SplitEntry& split) {
    return split.name == trained && HasRecords(split, dataset_dir);
  });
  return unbuilt.empty() || is_built ? trained : unbuilt;
}

void WarnOfYoungStatistics(std::string_view tag, const train::RunMetadata& metadata,
                           double net_decay, int64_t step) {
  const auto flags = metadata.find(train::kFlags);
  const bool is_fine_tuned =
      flags != metadata.end() && flags->second.find("--checkpoint_path=") != std::string::npos;
  if (metadata.empty() || is_fine_tuned) return;
  const auto recorded = metadata.find(train::kBatchNormDecay);
  const double decay = recorded == metadata.end()
                           ? net_decay
                           : ParseNumber<double>(recorded->second).value_or(net_decay);
  const std::string problem = train::DescribeYoungStatistics(decay, step);
  if (!problem.empty()) LogWarning(tag, "{}", problem);
}

train::WeightsKind ChooseWeightsKind(double moving_average_decay) {
  return moving_average_decay != 0 ? train::WeightsKind::kMovingAverages
                                   : train::WeightsKind::kTrained;
}

train::RunMetadata ReadRunMetadata(const io::WeightsSource& weights) {
  return weights.carole_checkpoint() != nullptr ? weights.carole_checkpoint()->attributes
                                                : train::RunMetadata{};
}

}  // namespace carole::commands
