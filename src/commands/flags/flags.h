// The flags that several commands share, with TF-Slim's names, types and defaults. Each struct is
// filled by its Add… function and Parse(); an int or a text that TF-Slim leaves unset is 0 or empty
// here.
#pragma once

#include <cstdint>
#include <string>

#include "io/image/image.h"
#include "src/commands/cli/command_line.h"
#include "src/optim/lr_schedule.h"
#include "src/optim/optimizers.h"

namespace carole::commands {

// A check of names of .h5 files: "" unless Keras would look for another layout there.
std::string RefuseWeightsName(const std::string& name);

struct DatasetFlags {
  std::string dataset_name = "imagenet";
  std::string dataset_split_name = "train";
  std::string dataset_dir;
  std::string work_dir;  // for the index of records where dataset_dir is read-only
  int labels_offset = 0;
  std::string preprocessing_name;
  bool use_grayscale = false;
  int num_preprocessing_threads = 0;        // DecodeThreads()
  std::string dct_method = "INTEGER_FAST";  // of JPEGs; TensorFlow's default
  std::string jpeg_decoder = "cpu";
  bool dct_scaling = false;
  bool fast_mode = true;  // of Inception's training
  bool use_bounding_boxes = false;
  std::string input_dtype = "auto";  // of training images
  int64_t shuffle_block_records = 0;
  int64_t max_bad_records = 0;
};
// What --dct_method names; TensorFlow's default unless it is another.
io::DctMethod ParseDctMethod(const std::string& name);

void AddDatasetFlags(CommandLine& line, DatasetFlags& flags);

// Values go straight into what the optimizer and the schedule take.
void AddOptimizerFlags(CommandLine& line, std::string& optimizer, optim::OptimizerOptions& options);
void AddScheduleFlags(CommandLine& line, optim::LearningRateOptions& options);

struct NetFlags {
  std::string model_name = "inception_v3";
  int image_size = 0;  // 0: the net's own
};
// `size_name` is what the command calls the size: train_image_size or eval_image_size.
void AddNetFlags(CommandLine& line, NetFlags& flags,
                 const std::string& size_name = "train_image_size");

// How this machine is used, and how ranks talk.
struct MachineFlags {
  std::string backend = "auto";
  int threads = 0;  // of each rank; 0: this rank's share of the cores
  std::string precision = "fp32";
  bool autotune = true;
  bool winograd = true;
  std::string all_reduce = "auto";
  std::string wire_dtype = "fp32";
  double collective_timeout = 60;  // seconds
  double bucket_mb = 0;            // 0: chosen by the program
  bool trains = false;             // by the command: N processes alone would be N trainings
};
void AddMachineFlags(CommandLine& line, MachineFlags& flags);
void AddCollectiveFlags(CommandLine& line, MachineFlags& flags);

}  // namespace carole::commands
