#include "src/commands/cli/flag_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "src/commands/cli/config_file.h"
#include "src/commands/cli/flag.h"
#include "src/core/error.h"

namespace carole::commands {
namespace {

constexpr int kMaxNesting = 16;

Arguments Expand(const Arguments& words, int depth);

Arguments ReadFile(std::string path, int depth) {
  std::string refused = ExpandHome(path);
  if (refused.empty()) refused = ValidateFlagFile(path);
  if (!refused.empty()) throw UsageError("[flags] --flagfile: " + refused);
  std::ifstream file(path);
  if (!file)
    throw UsageError(
        fmt::format("[flags] --flagfile: {}: cannot be read: {}", path, std::strerror(errno)));
  if (depth == kMaxNesting)
    throw UsageError(fmt::format("[flags] --flagfile: {}: includes itself", path));
  Arguments words;
  for (std::string line; std::getline(file, line);) {
    const std::string_view word = TrimBlanks(line);
    if (!word.empty() && !word.starts_with('#') && !word.starts_with("//"))
      words.emplace_back(word);
  }
  return Expand(words, depth + 1);
}

Arguments Expand(const Arguments& words, int depth) {
  constexpr std::string_view kFlag = "-flagfile";
  Arguments expanded;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[i];
    if (word.starts_with("--")) word.remove_prefix(1);
    const bool has_value = word.starts_with(std::string(kFlag) + "=");
    if (!has_value && word != kFlag) {
      expanded.push_back(words[i]);
      continue;
    }
    if (!has_value && ++i == words.size())
      throw UsageError("[flags] --flagfile: its value is missing, want a file");
    const std::string path(has_value ? word.substr(kFlag.size() + 1) : std::string_view(words[i]));
    const Arguments inside = ReadFile(path, depth);
    expanded.insert(expanded.end(), inside.begin(), inside.end());
  }
  return expanded;
}

}  // namespace

Arguments ReadFlagFiles(const Arguments& words) { return Expand(words, 0); }

}  // namespace carole::commands
