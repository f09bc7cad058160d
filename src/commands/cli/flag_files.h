// --flagfile=FILE, as the flags of TensorFlow's programs (absl) have it.
#pragma once

#include "src/commands/cli/commands.h"

namespace carole::commands {

// The words with those of each such file in its place: one a line, without blanks around it; empty
// lines and comments (# or //) do not count; a file may name others; ~/ is the user's folder. Words
// behind -- count too: `carole launch -- train --flagfile=F`. Throws UsageError for a file that
// cannot be read, and for one that comes to itself.
Arguments ReadFlagFiles(const Arguments& words);

}  // namespace carole::commands
