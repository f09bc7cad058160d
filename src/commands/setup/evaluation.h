// Evaluation of a net on a split, shared by `carole eval` and the evaluation during training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/weights/open_weights.h"
#include "src/commands/setup/inputs.h"
#include "src/commands/setup/rank_context.h"
#include "src/train/evaluation/inference.h"
#include "src/train/evaluation/metrics.h"
#include "src/train/state/run_metadata.h"
#include "src/train/state/warm_start.h"

namespace carole::commands {

class Evaluation {
 public:
  // Builds the net for forward-only execution. `share`: the variables of a training run to
  // evaluate; nullptr: the evaluation has variables of its own. `share` and `context` must outlive
  // this.
  //
  // The batch has `local_batch` images per rank. It is smaller, but at least one image, if the
  // activations would exceed `max_bytes` (0: no limit) or the free memory of the device. All ranks
  // use the smallest batch of any rank. Collective.
  Evaluation(const DataConfig& dataset, const NetInput& input, const RankContext& context,
             int64_t local_batch, VariableStore* share = nullptr, size_t max_bytes = 0);

  VariableStore& store() { return inference_->store(); }
  // The decay of the moving statistics in a run that did not choose it.
  double statistics_decay() const { return statistics_decay_; }

  // Makes one pass over the split, or over its first `max_samples` (0: all). These are the same
  // samples on any number of ranks. Collective. Returns nullopt if a rank was asked to stop.
  std::optional<train::Metrics> Run(int64_t max_samples = 0,
                                    const std::function<bool()>& stop_requested = {});

 private:
  const DataConfig dataset_;
  const NetInput input_;
  const RankContext& context_;
  int64_t local_batch_;
  double statistics_decay_ = 0;
  std::unique_ptr<train::Inference> inference_;
};

// Returns the names of the net's classes, in its order. A class that the data set does not have is
// named by its label's number.
std::vector<std::string> NetClassNames(const io::DatasetEntry& dataset,
                                       const std::filesystem::path& dataset_dir,
                                       int64_t labels_offset, int64_t num_classes);
std::vector<std::string> NetClassNames(const DataConfig& dataset, const NetInput& input);

// Splits the checkpoint attribute train::kClassNames, which has one line per name.
std::vector<std::string> SplitClassNames(const std::string& text);

// Returns what labels and pixels mean, as run metadata: checkpoints store it, and evaluation
// compares it.
train::RunMetadata MakeDataMetadata(const DataConfig& dataset, const NetInput& input);

// Returns the split that is evaluated by default: the first one of the data set that is not
// `trained` and has records, else `trained`. Data that is not built yet counts as having records.
std::string DefaultEvaluationSplit(const io::DatasetEntry& dataset,
                                   const std::filesystem::path& dataset_dir,
                                   const std::string& trained);
// Whether a folder has records of this split. Returns true for lists of files and folders.
bool HasRecords(const io::SplitEntry& split, const std::filesystem::path& dataset_dir);

// Warns, with the remedy, if the moving statistics of batch norm still hold much of their start.
// `metadata`: that of the run. `net_decay`: the decay of the net, which holds if the run did not
// record another one. A run that was fine-tuned started from useful statistics.
void WarnOfYoungStatistics(std::string_view tag, const train::RunMetadata& metadata,
                           double net_decay, int64_t step);

// Returns which weights of a checkpoint are used: as in TF-Slim, the moving averages unless
// --moving_average_decay is 0.
train::WeightsKind ChooseWeightsKind(double moving_average_decay);

// Returns the metadata of the run that wrote these weights; empty for files of other programs.
train::RunMetadata ReadRunMetadata(const io::WeightsSource& weights);

}  // namespace carole::commands
