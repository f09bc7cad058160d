// A net and the images of a split: what eval has in common with train's --eval_every.
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
  // `share`: the variables of a training run, which outlive this; without it there are variables of
  // its own. All references outlive this. local_batch: at most so many images at a time, and no
  // more than whose activations fit into most_bytes (0: any) and what a device has free, but one;
  // ranks agree on the least. Collective.
  Evaluation(const DatasetFlags& dataset, const NetInput& input, const Job& job,
             int64_t local_batch, VariableStore* share = nullptr, size_t most_bytes = 0);

  VariableStore& store() { return inference_->store(); }

  // One pass over the split, or its first `max_samples` (0: all), the same on any number of ranks.
  // Collective; nullopt when a rank was asked to stop.
  std::optional<train::Metrics> Run(int64_t max_samples = 0,
                                    const std::function<bool()>& stop_requested = {});

 private:
  const DatasetFlags dataset_;
  const NetInput input_;
  const Job& job_;
  int64_t local_batch_;
  std::unique_ptr<train::Inference> inference_;
};

// Names of the net's classes, in its order: what is no class of the data set is called by the
// number that its label would have.
std::vector<std::string> NamesOfClasses(const io::DatasetEntry& dataset,
                                        const std::filesystem::path& dataset_dir,
                                        int64_t labels_offset, int64_t num_classes);
std::vector<std::string> NamesOfClasses(const DatasetFlags& dataset, const NetInput& input);

// Of the attribute train::kClassNames, a line for each.
std::vector<std::string> FromAttribute(const std::string& text);

// What labels and pixels mean, for a checkpoint's attributes and to be compared with them.
train::RunMetadata DataFacts(const DatasetFlags& dataset, const NetInput& input);

// Of what --moving_average_decay says: as in TF-Slim, averages unless it is 0.
train::WeightsKind KindOfWeights(double moving_average_decay);

// What the run that wrote these weights told of itself; nothing for files of other programs.
train::RunMetadata FactsOf(const io::WeightsReader& weights);

}  // namespace carole::commands
