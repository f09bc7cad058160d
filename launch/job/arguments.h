// The arguments of `carole train` as a job is launched with them: all tasks get the same ones.
#pragma once

#include <functional>
#include <map>
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

// Moves the flags whose names are launch's own, with their values, from `train` to `launch`: where
// a platform's call leads to, all that users add stands behind "--".
void TakeFlags(const std::function<bool(const std::string& name)>& is_own, SplitArguments& split);

// The arguments of `carole eval` that follows what a training with these flags given (values by
// names) writes to train_dir: same data (but for its split) and net, event files in the subfolder
// eval. It ends with the training, or after `timeout` seconds without a new checkpoint.
Arguments EvalArguments(const std::map<std::string, std::string>& given,
                        const std::string& train_dir, double timeout);

}  // namespace carole::launch
