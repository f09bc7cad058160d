// Command lines of programs that start programs. `carole launch [FLAGS] -- train [FLAGS OF TRAIN]`
// is the main one: all tasks of a job get the same command line.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/commands/cli/commands.h"

namespace carole::commands {

// Returns the command line that runs `carole COMMAND ARGUMENTS` with this program.
Arguments SelfCommand(const char* command, const Arguments& arguments);

// The arguments before and after the first "--".
struct LaunchArguments {
  Arguments launch;
  Arguments train;  // without the word "train"
};

// Throws UsageError if there is no "--", or if the word after it is not "train".
LaunchArguments SplitAtDashes(const Arguments& arguments);

// Moves the flags of launch, with their values, from split.train to split.launch. `is_own` says
// whether a flag belongs to launch; the name has no dashes in front, and inner dashes are
// underscores. Programs that stand in for a platform's own call carole in such a way that all flags
// of the user follow "--".
void MoveLaunchFlags(const std::function<bool(const std::string& name)>& is_own,
                     LaunchArguments& split);

// Returns the arguments of a `carole eval` that follows a training. `given` maps the names of the
// training's flags to their values; `train_dir` is the folder of its checkpoints. The evaluation
// uses the same data (the caller adds the split) and the same net, and writes event files to the
// subfolder "eval". It ends with the training, or after `timeout` seconds without a new checkpoint.
Arguments EvalArguments(const std::map<std::string, std::string>& given,
                        const std::string& train_dir, double timeout);

}  // namespace carole::commands
