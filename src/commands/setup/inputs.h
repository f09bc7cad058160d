// What the flags of net and data set mean together: which pictures go into which net.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "io/pipeline/pipeline.h"
#include "nets/nets.h"
#include "src/commands/flags/flags.h"
#include "src/commands/setup/rank_context.h"

namespace carole::commands {

struct NetInput {
  const nets::NetEntry* net = nullptr;
  const io::DatasetEntry* dataset = nullptr;
  std::string preprocessing;
  int image_size = 0;
  int channels = 0;     // the data set's, or 1 with --use_grayscale
  int num_classes = 0;  // the data set's, after labels_offset
  // Given: in training images are bytes, which the net normalizes so.
  std::optional<NormalizeAttributes> normalize;

  DType training_dtype() const { return normalize ? DType::kU8 : DType::kF32; }
};

// The name in io/preprocessing/preprocessing.h for --preprocessing_name, where as in TF-Slim a
// net's name stands for its preprocessing; this net's where the flag is empty.
std::string PreprocessingOf(const nets::NetEntry& net, const std::string& flag);

// Throws UsageError for names that there are not, for an --input_dtype that the preprocessing
// cannot have, and when --dataset_dir is missing.
NetInput ResolveNetInput(const NetFlags& net, const DatasetFlags& dataset);

// The flags of training data, beside AddDatasetFlags()'s.
void AddInputFlags(CommandLine& line, DatasetFlags& flags);

// Threads that read and decode: no more than the rank has cores, or hyperthreads where a GPU
// computes. Beside those that compute, unless these take all cores.
int DecodeThreads(const DatasetFlags& flags, const Job& job);

// This rank's part of one ordered pass; callers set training, shuffle, repeat, seed and place.
io::PipelineOptions MakePipelineOptions(const DatasetFlags& flags, const NetInput& input,
                                        const Job& job, int64_t local_batch);

// Records of the split. Collective: throws ConfigError where ranks see other shards.
int64_t CountSamples(const DatasetFlags& flags, const NetInput& input, const Job& job);

// The net on this input, for evaluation unless the caller sets `training`.
nets::ModelOptions MakeModelOptions(const NetInput& input, int64_t local_batch);

// A machine's batch shared by its ranks, at least one image each.
int64_t ShareOfMachine(int64_t batch, const Job& job);

// What train and eval do with a line that is parsed: checks it before ranks meet, and runs `body`
// as a rank.
int RunOnInput(const CommandLine& line, const DatasetFlags& dataset, const NetFlags& net,
               const MachineFlags& machine, const std::function<int(Job&, const NetInput&)>& body);

}  // namespace carole::commands
