#include "src/core/error.h"

#include <fmt/format.h>

#include <cstdio>

namespace carole {

std::string Option(std::string_view name) { return fmt::format("{}{})", kOptionMark, name); }

std::string Option(std::string_view name, std::string_view value) {
  return fmt::format("{}={}", Option(name), value);
}

ShownValue::ShownValue(double number) : text_(fmt::format("{}", number)) {}

std::string OptionProblem::Text() const {
  std::string text = fmt::format("[{}] {}", tag, Option(option));
  if (!problem.empty()) text += ": " + problem;
  if (got) text += ": got " + (got->text().empty() ? "nothing" : got->text());
  if (!want.empty()) text += (got ? ", want " : ": want ") + want;
  if (!hint.empty()) text += "; " + hint;
  return text;
}

const char* Describe(ExitCode code) {
  if (static_cast<int>(code) == 1) return "problem found";  // carole doctor
  switch (code) {
    case ExitCode::kOk:
      return "done";
    case ExitCode::kUsage:
      return "wrong usage";
    case ExitCode::kData:
      return "bad data";
    case ExitCode::kUnavailable:
      return "a rank or a device is gone";
    case ExitCode::kInternal:
      return "a bug in carole; please report it";
    case ExitCode::kDisk:
      return "disk problem";
    case ExitCode::kSaved:
      return "saved; run the same command again to continue";
    case ExitCode::kConfiguration:
      return "bad configuration";
  }
  return "unknown";
}

void PrintExit(int code, std::string_view meaning) {
  const std::string line = fmt::format("carole: exit {} ({})\n", code, meaning);
  // Not fmt::print: it throws if standard error was closed.
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace carole
