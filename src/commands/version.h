// What this program was built with.
#pragma once

namespace carole::commands {

void PrintVersion();

}  // namespace carole::commands
