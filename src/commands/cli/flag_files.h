// --flagfile=FILE as absl (the flags library of TensorFlow's programs) defines it.
#pragma once

#include "src/commands/cli/commands.h"

namespace carole::commands {

// Returns the words with each --flagfile replaced by the words of its file. A file holds one word
// per line; blanks around it, empty lines and comments (# or //) do not count. A file may name
// other files; ~/ stands for the home folder. Words after -- are expanded as well:
// `carole launch -- train --flagfile=F`. Throws UsageError if a file cannot be read, or includes
// itself.
Arguments ReadFlagFiles(const Arguments& words);

}  // namespace carole::commands
