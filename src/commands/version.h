// What this program was built with.
#pragma once

namespace carole::commands {

const char* Version();  // "0.1.0"

void PrintVersion();

}  // namespace carole::commands
