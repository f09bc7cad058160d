#include "src/commands/setup/evaluation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/ranks/rank_local_work.h"
#include "io/checkpoint/checkpoint.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/train/evaluation/evaluate.h"
#include "src/train/loop/epoch_report.h"

namespace carole::commands {
namespace {

// The first samples of another source, over all ranks, and how many it left out.
class FirstSamples : public io::BatchSource {
 public:
  // `offset`: of this rank's share in a batch of all.
  FirstSamples(std::unique_ptr<io::BatchSource> source, int64_t count, int64_t offset)
      : source_(std::move(source)), count_(count), offset_(offset) {}

  const io::Batch* Next() override {
    if (batch_.next_position + offset_ >= count_) return nullptr;  // what lies there may be damaged
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

// Ranks take records in turn by batches of one size. Shares of a machine differ where machines have
// different numbers of ranks.
int64_t LeastOfRanks(int64_t local_batch, const Job& job) {
  return std::ranges::min(AllGather(job.communicator(), local_batch, {.what = "evaluation batch"}));
}

// Less than `batch`, whose activations take `bytes`, where these are too many.
int64_t BatchWithin(size_t most_bytes, int64_t batch, size_t bytes) {
  if (bytes <= most_bytes || batch == 1) return batch;
  const auto share = static_cast<double>(most_bytes) / static_cast<double>(bytes);
  return std::clamp(static_cast<int64_t>(share * static_cast<double>(batch)), int64_t{1},
                    batch - 1);
}

}  // namespace

Evaluation::Evaluation(const DatasetFlags& dataset, const NetInput& input, const Job& job,
                       int64_t local_batch, VariableStore* share, size_t most_bytes)
    : dataset_(dataset), input_(input), job_(job), local_batch_(LeastOfRanks(local_batch, job)) {
  (void)CountSamples(dataset, input, job);
  constexpr size_t kAny = std::numeric_limits<size_t>::max();
  most_bytes =
      std::min(most_bytes > 0 ? most_bytes : kAny, job.backend().FreeBytes().value_or(kAny));
  for (const int64_t given = local_batch_;;) {
    nets::Model model = nets::BuildModel(*input.net, MakeModelOptions(input, local_batch_));
    collectives::RunRankLocal(job.communicator(), "plans", [&] {
      inference_.reset();
      inference_ = std::make_unique<train::Inference>(std::move(model.graph), model.logits,
                                                      job.backend(), share);
    });
    const int64_t fits =
        LeastOfRanks(BatchWithin(most_bytes, local_batch_, inference_->activation_bytes()), job);
    if (fits == local_batch_) {
      if (fits < given)
        LogInfo("memory", "evaluation takes {} images at a time, to stay in its bounds", fits);
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
  collectives::RunRankLocal(job_.communicator(), "evaluation data", [&] {
    source = std::make_unique<FirstSamples>(
        io::MakePipeline(MakePipelineOptions(dataset_, input_, job_, local_batch_)), count,
        job_.rank() * local_batch_);
  });
  auto metrics = train::Evaluate(*inference_, *source, job_.communicator(), stop_requested);
  if (metrics && dataset_.max_bad_records > 0) {
    int64_t skipped = 0;
    for (int64_t mine : AllGather(job_.communicator(), source->skipped(), {.what = "bad records"}))
      skipped += mine;
    train::RequireFewSkipped(skipped, dataset_.max_bad_records);
  }
  return metrics;
}

std::vector<std::string> NamesOfClasses(const io::DatasetEntry& dataset,
                                        const std::filesystem::path& dataset_dir,
                                        int64_t labels_offset, int64_t num_classes) {
  const std::vector<std::string> of_labels = io::ClassNames(dataset, dataset_dir);
  const auto num_labels = static_cast<int64_t>(of_labels.size());
  std::vector<std::string> names;
  for (int64_t label = labels_offset; label < labels_offset + num_classes; ++label) {
    const bool is_class = label >= 0 && label < num_labels;
    names.push_back(is_class ? of_labels[label] : std::to_string(label));
  }
  return names;
}

std::vector<std::string> NamesOfClasses(const DatasetFlags& dataset, const NetInput& input) {
  return NamesOfClasses(*input.dataset, dataset.dataset_dir, dataset.labels_offset,
                        input.num_classes);
}

std::vector<std::string> FromAttribute(const std::string& text) {
  return text.empty() ? std::vector<std::string>() : CLI::detail::split(text, '\n');
}

train::RunMetadata DataFacts(const DatasetFlags& dataset, const NetInput& input) {
  return {{train::kDataset, std::string(input.dataset->name)},
          {train::kImageSize, std::to_string(input.image_size)},
          {train::kChannels, std::to_string(input.channels)},
          {train::kNumClasses, std::to_string(input.num_classes)},
          {train::kLabelsOffset, std::to_string(dataset.labels_offset)},
          {train::kPreprocessing, input.preprocessing},
          {train::kDctMethod, dataset.dct_method},
          {train::kDctScaling, dataset.dct_scaling ? "1" : "0"},
          {train::kClassNames, JoinTexts(NamesOfClasses(dataset, input), "\n")}};
}

train::WeightsKind KindOfWeights(double moving_average_decay) {
  return moving_average_decay != 0 ? train::WeightsKind::kMovingAverages
                                   : train::WeightsKind::kTrained;
}

train::RunMetadata FactsOf(const io::WeightsReader& weights) {
  return weights.own() != nullptr ? weights.own()->attributes : train::RunMetadata{};
}

}  // namespace carole::commands
