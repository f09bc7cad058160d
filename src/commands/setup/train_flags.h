// The flags of `carole train`, which fill a TrainConfig. Their meaning is said in the help texts
// (train_flags.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/commands/cli/command_line.h"
#include "src/commands/setup/train_config.h"

namespace carole::commands {

// Declares the flags on a command line and parses them. Programs whose jobs run here have several
// names for one option, or say it in other units. What a user gives wins over what a recipe sets.
// So this class decides which of them holds, and the config has one value for each option.
class TrainFlags {
 public:
  // `line` and `config` must outlive this.
  TrainFlags(CommandLine& line, TrainConfig& config);

  // Parses the arguments, completes the config and validates it. Returns false if help was asked
  // for and printed. Throws UsageError.
  bool Parse(const std::vector<std::string>& arguments);

 private:
  void AddRunFlags();
  void AddRankFlags();
  void AddBatchFlags();
  void AddFileFlags();
  void AddLossFlags();
  void AddFineTuningFlags();
  void AddEvaluationFlags();
  void ResolveBackend();
  void ResolveBatch();
  void ResolveBatchNorm();
  void ResolvePreprocessing();
  void ResolveLength();
  void ResolveEvaluation();
  void ResolveSaves();
  void ResolveIntervals();

  CommandLine& line_;
  TrainConfig& config_;
  int64_t max_step_ = 0;
  std::string save_interval_ = "600";
  bool clone_on_cpu_ = false;
  bool sync_replicas_ = false;
  int64_t replicas_to_aggregate_ = 1;
  std::string trace_steps_ = "100";
};

// Returns the split that is evaluated: the named one, else DefaultEvaluationSplit(). Throws
// UsageError for an unknown data set.
std::string EvaluationSplit(const TrainConfig& config);

}  // namespace carole::commands
