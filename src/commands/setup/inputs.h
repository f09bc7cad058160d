// Combines the flags of net and data set: which images go into which net.
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
  int channels = 0;                 // the data set's, or 1 with --use_grayscale
  int num_classes = 0;              // the data set's number less labels_offset
  io::Augmentations augmentations;  // of training; all are active
  std::optional<nets::QuantizationOptions> quantization;
  // If set, training images are bytes, and the net normalizes them in this way.
  std::optional<NormalizeAttributes> normalize;

  DType training_dtype() const { return normalize ? DType::kU8 : DType::kF32; }
};

// Returns the name of a preprocessing (io/preprocessing/preprocessing.h) for --preprocessing_name.
// As in TF-Slim, a net's name stands for the net's preprocessing. If the flag is empty, it is that
// of `net`.
std::string PreprocessingOf(const nets::NetEntry& net, const std::string& flag);

// Throws UsageError if --dataset_dir is missing.
void RequireDatasetDir(const DataConfig& dataset);

// Resolves names and sizes. Throws UsageError for unknown names, for an --input_dtype that the
// preprocessing does not support, and if --dataset_dir is missing.
NetInput ResolveNetInput(const NetConfig& net, const DataConfig& dataset);

// Adds the flags of training data that AddDatasetFlags() does not add.
void AddInputFlags(CommandLine& line, DataConfig& flags);

// Returns the number of threads that read and decode images, at most the rank's number of cores, or
// of hyperthreads if a GPU computes. By default these are the cores that the compute threads leave
// free. If they leave none, it is all cores, since decode threads sleep while enough batches are
// ready. Next to a GPU, launch::ThreadsNextToGpu() is the default.
int DecodeThreads(const DataConfig& flags, const RankContext& context);

// Returns options for this rank's part of one ordered pass over the split. Callers change training,
// shuffle, repeat, seed and start position as needed.
io::PipelineOptions MakePipelineOptions(const DataConfig& flags, const NetInput& input,
                                        const RankContext& context, int64_t local_batch);

// Changes the options to those of endless training: shuffled, with augmentations.
void SetTraining(const NetInput& input, io::PipelineOptions& options);

// Returns the number of records in the split. Collective. Throws ConfigError if ranks see different
// shards.
int64_t CountSamples(const DataConfig& flags, const NetInput& input, const RankContext& context);

// Return `options` with the sizes of this input, to build the net for evaluation or for training.
nets::ModelOptions MakeModelOptions(const NetInput& input, int64_t local_batch,
                                    nets::ModelOptions options = {});
nets::ModelOptions MakeTrainingModelOptions(const NetInput& input, int64_t local_batch,
                                            nets::ModelOptions options = {});

// Divides a host's batch among its ranks. Returns this rank's share, at least one image.
int64_t DivideHostBatch(int64_t batch, const RankContext& context);

// Runs `body` as one rank and returns its result. Resolves the input, checks that all ranks have
// the same flags, and calls `body`. Errors in flags are found after the ranks have connected, so
// that one rank reports them for all.
int RunOnInput(const CommandLine& line, const DataConfig& dataset, const NetConfig& net,
               const MachineConfig& machine,
               const std::function<int(RankContext&, const NetInput&)>& body);

}  // namespace carole::commands
