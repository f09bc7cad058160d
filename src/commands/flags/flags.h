// Flags that several commands share, with TF-Slim's names, types and defaults.
//
// Each struct holds the values of one group of flags. An Add... function declares the flags on a
// command line, which then refers to the struct; CommandLine::Parse() fills it. An int or a text
// that TF-Slim leaves unset is 0 or empty here. What a flag means is said in its help text only.
#pragma once

#include <cstdint>
#include <string>

#include "io/augmentation/augmentation.h"
#include "io/image/image.h"
#include "src/commands/cli/command_line.h"
#include "src/core/settings.h"
#include "src/optim/lr_schedule.h"
#include "src/optim/optimizers.h"

namespace carole::commands {

// Validates the name of an .h5 file: returns "", or an error text for *.weights.h5, where Keras
// expects another layout.
std::string ValidateWeightsName(const std::string& name);

struct DatasetFlags {
  std::string dataset_name = "imagenet";
  std::string dataset_split_name = "train";
  std::string dataset_dir;
  std::string work_dir;
  int labels_offset = 0;
  std::string preprocessing_name;
  bool use_grayscale = false;
  int num_preprocessing_threads = 0;  // 0: see DecodeThreads()
  std::string dct_method = "INTEGER_FAST";
  std::string jpeg_decoder = "cpu";
  bool dct_scaling = false;
  bool fast_mode = true;
  bool use_bounding_boxes = false;
  std::string input_dtype = "auto";
  io::Augmentations augmentations = io::AllAugmentations();  // with their settings
  int64_t shuffle_block_records = 0;
  int64_t max_bad_records = 0;
};
// Returns the method that --dct_method names, for an unknown name TensorFlow's default.
io::DctMethod ParseDctMethod(const std::string& name);

// Adds a flag for each setting, which is stored where the setting is. Settings of several objects
// that have the same name are one flag.
void AddSettings(CommandLine& line, const Settings& settings);

// Whether a command can run without --dataset_dir; its help says so.
enum class DatasetDir { kRequired, kOptional };
void AddDatasetFlags(CommandLine& line, DatasetFlags& flags,
                     DatasetDir dataset_dir = DatasetDir::kRequired);

// These flags are stored directly in the options of the optimizer and of the schedule.
void AddOptimizerFlags(CommandLine& line, std::string& optimizer, optim::OptimizerOptions& options);
void AddScheduleFlags(CommandLine& line, optim::LearningRateOptions& options);

struct NetFlags {
  std::string model_name = "inception_v3";
  int image_size = 0;  // pixels; 0: the net's own size
};
// `size_name`: the command's flag for the image size, train_image_size or eval_image_size.
void AddNetFlags(CommandLine& line, NetFlags& flags,
                 const std::string& size_name = "train_image_size");

// How a rank uses its machine, and how ranks communicate.
struct MachineFlags {
  std::string backend = "auto";
  int threads = 0;  // per rank; 0: this rank's share of the cores
  std::string precision = "fp32";
  bool autotune = true;
  bool winograd = true;
  std::string all_reduce = "auto";
  std::string wire_dtype = "fp32";
  double collective_timeout = 60;  // seconds
  double bucket_mb = 0;            // MiB; 0: chosen by the program
  // Not a flag; set by commands that train. They refuse to start if N processes of one job each
  // believe that they are alone, which would be N trainings.
  bool is_training = false;
};
// Adds the flags of a rank's own computation.
void AddMachineFlags(CommandLine& line, MachineFlags& flags);
// Adds the flags of communication between ranks.
void AddCollectiveFlags(CommandLine& line, MachineFlags& flags);

}  // namespace carole::commands
