// The arguments of `carole train` as a job is launched with them: all tasks get the same ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace carole::launch {

using Arguments = std::vector<std::string>;

// What stands behind the first "--", and what before. Throws UsageError when there is none, or when
// no training follows.
struct SplitArguments {
  Arguments launch;
  Arguments train;  // without the word "train"
};
SplitArguments Split(const Arguments& arguments);

// Moves the flags of these names, with their values, from `train` to `launch`: where a platform's
// call leads to, all that users add stands behind "--".
void TakeFlags(const std::vector<const char*>& names, SplitArguments& split);

// The last value of --name=VALUE or --name VALUE, with dashes or underscores.
std::optional<std::string> FlagValue(const Arguments& arguments, const std::string& name);

// The folder of checkpoints; "" when no flag names it.
std::string TrainDir(const Arguments& train);

// The arguments of `carole eval` that follows what this training writes: same data, net and folder,
// event files in its subfolder eval. It ends with the training, or after `timeout` seconds without
// a new checkpoint.
Arguments EvalArguments(const Arguments& train, double timeout);

}  // namespace carole::launch
