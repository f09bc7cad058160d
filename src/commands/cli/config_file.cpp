#include "src/commands/cli/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "src/commands/cli/flag.h"
#include "src/core/error.h"
#include "src/core/text/byte_order_mark.h"

namespace carole::commands {
namespace {

class TomlReader {
 public:
  TomlReader(const std::string& path, std::string_view text) : path_(path), rest_(text) {}

  std::vector<ConfigEntry> Read() {
    std::vector<ConfigEntry> entries;
    std::set<std::string> names;
    for (SkipBlankLines(); !rest_.empty(); SkipBlankLines()) {
      if (rest_[0] == '[') FailSection();
      ConfigEntry entry{.name = ReadName()};
      if (!names.insert(entry.name).second) Fail(entry.name + ": is there twice; give it once");
      entry.values = ReadValues();
      SkipComment();
      if (!rest_.empty() && rest_[0] != '\n') Fail(entry.name + ": got text after its value");
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  [[noreturn]] void Fail(const std::string& problem) const {
    throw UsageError(fmt::format("[config] {}:{}: {}", path_, line_, problem));
  }

  [[noreturn]] void FailSection() const {
    const std::string_view section = rest_.substr(0, rest_.find('\n'));
    Fail(
        fmt::format("section {}: sections are not allowed; write flags as NAME = VALUE without a "
                    "section",
                    TrimBlanks(section.substr(0, section.find(']') + 1))));
  }

  void Advance(size_t count) {
    line_ += static_cast<int>(std::ranges::count(rest_.substr(0, count), '\n'));
    rest_.remove_prefix(std::min(count, rest_.size()));
  }

  void SkipBlanks(std::string_view blanks) {
    Advance(std::min(rest_.find_first_not_of(blanks), rest_.size()));
  }

  void SkipComment() {
    SkipBlanks(" \t\r");
    if (rest_.starts_with('#')) Advance(std::min(rest_.find('\n'), rest_.size()));
  }

  void SkipBlankLines() {
    do {
      SkipBlanks(" \t\r\n");
      SkipComment();
    } while (rest_.starts_with('\n'));
  }

  std::string ReadName() {
    const std::string_view line = rest_.substr(0, rest_.find('\n'));
    const size_t equals = line.find('=');
    std::string name(TrimBlanks(line.substr(0, equals)));
    if (equals == std::string_view::npos || name.empty())
      Fail(fmt::format("got {}, want NAME = VALUE", TrimBlanks(line)));
    std::ranges::replace(name, '-', '_');
    Advance(equals + 1);
    SkipBlanks(" \t");
    return name;
  }

  std::vector<std::string> ReadValues() {
    if (!rest_.starts_with('[')) return {ReadValue()};
    std::vector<std::string> values;
    Advance(1);
    for (SkipBlankLines(); !rest_.starts_with(']'); SkipBlankLines()) {
      values.push_back(ReadValue());
      SkipBlankLines();
      if (rest_.starts_with(',')) {
        Advance(1);
      } else if (!rest_.starts_with(']')) {
        Fail("got an array without an end, want [VALUE, VALUE]");
      }
    }
    Advance(1);
    return values;
  }

  std::string ReadValue() {
    if (rest_.starts_with('"') || rest_.starts_with('\'')) return ReadString(rest_[0]);
    const size_t end = std::min(rest_.find_first_of(" \t\r\n,]#\"'"), rest_.size());
    if (end == 0) Fail("its value is missing, want NAME = VALUE");
    std::string value(rest_.substr(0, end));
    Advance(end);
    return value;
  }

  // In double quotes a backslash escapes the next character; single quotes have no escapes.
  std::string ReadString(char quote) {
    std::string text;
    size_t at = 1;
    for (; at < rest_.size() && rest_[at] != quote && rest_[at] != '\n'; ++at) {
      if (quote == '"' && rest_[at] == '\\') {
        text += Unescaped(++at < rest_.size() ? rest_[at] : '\n');
      } else {
        text += rest_[at];
      }
    }
    if (at >= rest_.size() || rest_[at] != quote) Fail("got a text without its closing quote");
    Advance(at + 1);
    return text;
  }

  char Unescaped(char c) const {
    switch (c) {
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case '"':
      case '\\':
        return c;
      default:
        Fail("unknown escape in a text, want \\n, \\t, \\\" or \\\\; or use single quotes");
    }
  }

  const std::string& path_;
  std::string_view rest_;
  int line_ = 1;
};

}  // namespace

std::string ValidateFlagFile(const std::string& path) {
  constexpr uintmax_t kMaxBytes = uintmax_t{1} << 20;
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) return "";  // reported when it is opened
  if (!fs::is_regular_file(path, error)) return path + ": is not a regular file";
  const uintmax_t size = fs::file_size(path, error);
  if (size <= kMaxBytes) return "";
  return fmt::format("{}: is too long: got {} bytes, want at most {}", path, size, kMaxBytes);
}

std::vector<ConfigEntry> ReadConfigFile(const std::string& path) {
  if (const std::string refused = ValidateFlagFile(path); !refused.empty())
    throw UsageError("[flags] --config: " + refused);
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw UsageError(
        fmt::format("[flags] --config: {}: cannot be read: {}", path, std::strerror(errno)));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return TomlReader(path, WithoutByteOrderMark(text)).Read();
}

}  // namespace carole::commands
