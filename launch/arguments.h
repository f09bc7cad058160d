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

// Of "name=value", as CommandLine::GivenFlags() tells what was given, however it was written.
std::optional<std::string> FlagValue(const Arguments& given, const std::string& name);

// The arguments of `carole eval` that follows what a training with these flags given (see
// FlagValue) writes to train_dir: same data (but for its split) and net, event files in the
// subfolder eval. It ends with the training, or after `timeout` seconds without a new checkpoint.
Arguments EvalArguments(const Arguments& given, const std::string& train_dir, double timeout);

}  // namespace carole::launch
