// The table of the program's commands. Each command has its own file in src/commands. To add one,
// write its file, declare its function here and add a row to kCommands.
//
// A command's function gets the arguments that follow its name and returns the exit code. It prints
// its own help (CommandLine). It throws the errors of src/core/error.h, which main() reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carole::commands {

using Arguments = std::vector<std::string>;

int Train(const Arguments& arguments);
int Eval(const Arguments& arguments);
int Predict(const Arguments& arguments);
int DatasetBuild(const Arguments& arguments);
int DatasetVerify(const Arguments& arguments);
int DatasetShow(const Arguments& arguments);
int CheckpointConvert(const Arguments& arguments);
int CheckpointInspect(const Arguments& arguments);
int CheckpointVerify(const Arguments& arguments);
int Export(const Arguments& arguments);
int ModelList(const Arguments& arguments);
int ModelSummary(const Arguments& arguments);
int Hostfile(const Arguments& arguments);
int Launch(const Arguments& arguments);
int Doctor(const Arguments& arguments);
int Drill(const Arguments& arguments);
int BenchTrain(const Arguments& arguments);
int BenchAllreduce(const Arguments& arguments);
int BenchInput(const Arguments& arguments);

struct Command {
  std::string_view name;     // one word, or two: "dataset build"
  std::string_view summary;  // one line for `carole help`
  int (*run)(const Arguments& arguments);
};

inline constexpr Command kCommands[] = {
    {"train", "train a net, alone or as one rank of a job", Train},
    {"eval", "measure accuracy and confusion matrix of a checkpoint", Eval},
    {"predict", "print the most likely classes of image files", Predict},
    {"dataset build", "write TFRecords from raw data", DatasetBuild},
    {"dataset verify", "check every record of TFRecord files", DatasetVerify},
    {"dataset show", "print the fields of one record", DatasetShow},
    {"checkpoint convert", "convert a checkpoint to .h5 or TensorFlow's format", CheckpointConvert},
    {"checkpoint inspect", "print the contents of a checkpoint", CheckpointInspect},
    {"checkpoint verify", "check every value of checkpoints", CheckpointVerify},
    {"export", "write a trained net for ONNX, TensorFlow or safetensors", Export},
    {"model list", "list the nets", ModelList},
    {"model summary", "print layers, shapes, parameters and memory of a net", ModelSummary},
    {"hostfile", "print the hosts of a job for mpirun or ssh", Hostfile},
    {"launch", "run a training on all hosts of a TF_CONFIG job", Launch},
    {"doctor", "check machine, MPI, GPU, network, data and disk", Doctor},
    {"drill", "inject faults into short trainings and check how they end", Drill},
    {"bench train", "measure the speed of training steps", BenchTrain},
    {"bench allreduce", "measure the speed of all-reduce", BenchAllreduce},
    {"bench input", "measure the speed of reading and decoding images", BenchInput},
};

}  // namespace carole::commands
