// Flags that several commands share, with TF-Slim's names, types and defaults.
//
// Each struct holds the values of one group of flags. An Add... function declares the flags on a
// command line, which then refers to the struct; CommandLine::Parse() fills it. An option that a
// library defines is stored in the library's struct, not in a copy. An int or a text that TF-Slim
// leaves unset is 0 or empty here. What a flag means is said in its help text only.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/communicator_options.h"
#include "io/augmentation/augmentation.h"
#include "io/image/image.h"
#include "io/pipeline/pipeline.h"
#include "nets/layers/model.h"
#include "src/backend/backend.h"
#include "src/commands/cli/command_line.h"
#include "src/core/settings.h"
#include "src/optim/lr_schedule.h"
#include "src/optim/optimizers.h"

namespace carole::commands {

// Validates the name of an .h5 file: returns "", or an error text for *.weights.h5, where Keras
// expects another layout.
std::string ValidateWeightsName(const std::string& name);

struct DataConfig {
  std::string dataset_name;
  std::string preprocessing_name;
  bool use_grayscale = false;
  int num_preprocessing_threads = 0;  // 0: see DecodeThreads()
  std::string input_dtype = "auto";
  io::Augmentations augmentations = io::AllAugmentations();  // with their settings
  io::PipelineOptions pipeline;  // MakePipelineOptions() adds what follows from net and rank
};
// Returns the default with this data set and split.
DataConfig MakeDataConfig(const std::string& dataset_name, const std::string& split);
// Returns the method of this name, for an unknown name TensorFlow's default.
io::DctMethod ParseDctMethod(const std::string& name);
std::string Name(io::DctMethod method);

// Adds a flag for each setting, which is stored where the setting is. Settings of several objects
// that have the same name are one flag.
void AddSettings(CommandLine& line, const Settings& settings);

// Whether a command can run without --dataset_dir; its help says so.
enum class DatasetDir { kRequired, kOptional };
void AddDatasetFlags(CommandLine& line, DataConfig& config,
                     DatasetDir dataset_dir = DatasetDir::kRequired);
// The part of these flags that says how images and labels become the input of a net. Prediction
// needs no more.
void AddPixelFlags(CommandLine& line, DataConfig& config);

// The checkpoint that a command reads.
struct CheckpointConfig {
  std::string path = "/tmp/tfmodel/";
  std::string train_dir;            // another name for it, which counts if `path` is not given
  double moving_average_decay = 0;  // not 0: the moving averages of the variables are used
};
void AddCheckpointFlags(CommandLine& line, CheckpointConfig& config);
// Decides which of the two names holds. Call it after the flags were parsed.
void ResolveCheckpoint(const CommandLine& line, CheckpointConfig& config);

// These flags are stored directly in the options of the optimizer and of the schedule.
void AddOptimizerFlags(CommandLine& line, std::string& optimizer, optim::OptimizerOptions& options);
void AddScheduleFlags(CommandLine& line, optim::LearningRateOptions& options);

struct NetConfig {
  std::string model_name = "inception_v3";
  nets::ModelOptions model;  // MakeModelOptions() adds what follows from the data
};
// `size_name`: the command's flag for the image size, train_image_size or eval_image_size.
void AddNetFlags(CommandLine& line, NetConfig& flags,
                 const std::string& size_name = "train_image_size");

// Throws UsageError for a quantized net in another precision: the rounding of 16-bit numbers would
// hide that of 8-bit codes.
void RequireFp32IfQuantized(const nets::ModelOptions& model, Precision precision);

// How a rank uses its machine, and how ranks communicate.
struct MachineConfig {
  std::string backend = "auto";
  int threads = 0;  // per rank; 0: this rank's share of the cores
  Precision precision = Precision::kFp32;
  bool autotune = true;
  bool winograd = true;
  collectives::CommunicatorOptions communicator;
  double bucket_mb = 0;  // MiB; 0: chosen by the program
  // Not a flag; set by commands that train. They refuse to start if N processes of one job each
  // believe that they are alone, which would be N trainings.
  bool is_training = false;
  // Not a flag; set by commands. The flags that an error names if memory runs out: smaller values
  // need less memory.
  std::string memory_flags = "--batch_size";
};
void AddPrecisionFlag(CommandLine& line, Precision& precision, const std::string& help);
// Adds the flags of a rank's own computation.
void AddMachineFlags(CommandLine& line, MachineConfig& flags);
// Adds the flags of communication between ranks.
void AddCollectiveFlags(CommandLine& line, MachineConfig& flags);

}  // namespace carole::commands
