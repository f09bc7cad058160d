// --config=FILE: flags in a TOML file, one NAME = VALUE per line.
#pragma once

#include <string>
#include <vector>

namespace carole::commands {

// Validates a file of flags: returns "" if the file can be read or is missing, else an error text.
// Devices, pipes and files over 1 MiB are refused, because the whole file is read.
std::string ValidateFlagFile(const std::string& path);

struct ConfigEntry {
  std::string name;                 // with underscores
  std::vector<std::string> values;  // more or fewer than one only if it is an array
};

// Reads the part of TOML that flags need: comments, and names whose values are strings, numbers,
// bools or arrays of these. A value without quotes may be any word. Throws UsageError that names
// the line, also for sections and for a name that is there twice.
std::vector<ConfigEntry> ReadConfigFile(const std::string& path);

}  // namespace carole::commands
