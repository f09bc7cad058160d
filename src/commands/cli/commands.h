// The program's commands, each in its own file. To add one: write it, declare it here, add a row.
//
// A command gets the arguments behind its name, prints its own help, and returns the exit code;
// what goes wrong it throws (src/core/error.h).
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
int ModelList(const Arguments& arguments);
int ModelSummary(const Arguments& arguments);
int Hostfile(const Arguments& arguments);
int Launch(const Arguments& arguments);
int Doctor(const Arguments& arguments);
int BenchTrain(const Arguments& arguments);
int BenchAllreduce(const Arguments& arguments);
int BenchInput(const Arguments& arguments);

struct Command {
  std::string_view name;  // one or two words
  std::string_view help;
  int (*run)(const Arguments& arguments);
};

inline constexpr Command kCommands[] = {
    {"train", "train a net, alone or as a rank under mpirun or srun", Train},
    {"eval", "accuracy and confusion matrix of a checkpoint over a split", Eval},
    {"predict", "the likeliest classes of image files", Predict},
    {"dataset build", "write TFRecords from raw data", DatasetBuild},
    {"dataset verify", "check every record of TFRecord files", DatasetVerify},
    {"dataset show", "print the fields of one record", DatasetShow},
    {"checkpoint convert", "between .h5 and TensorFlow's checkpoints", CheckpointConvert},
    {"checkpoint inspect", "print what a checkpoint holds", CheckpointInspect},
    {"checkpoint verify", "check every weight, slot and number of checkpoints", CheckpointVerify},
    {"model list", "list the nets", ModelList},
    {"model summary", "layers, shapes and parameters of a net", ModelSummary},
    {"hostfile", "print the machines of TF_CONFIG or a Slurm job for mpirun or ssh", Hostfile},
    {"launch", "train on all machines of a TF_CONFIG job", Launch},
    {"doctor", "look for problem in machine, MPI, network, data and disk", Doctor},
    {"bench train", "speed of training steps", BenchTrain},
    {"bench allreduce", "speed of the sum over ranks", BenchAllreduce},
    {"bench input", "speed of reading, decoding and augmenting a data set", BenchInput},
};

}  // namespace carole::commands
