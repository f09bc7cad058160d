#include "io/tensorflow/tf_checkpoint_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "src/core/error.h"
#include "src/core/text/byte_order_mark.h"

namespace carole::io {
namespace {

constexpr std::string_view kLatest = "model_checkpoint_path";

// Reads fields of a text protocol buffer from front to back.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(WithoutByteOrderMark(text)) {}

  // Skips blanks and comments. Returns true if nothing is left.
  bool AtEnd() {
    while (next_ < text_.size()) {
      if (text_[next_] == '#') {
        next_ = std::min(text_.find('\n', next_), text_.size());
      } else if (std::isspace(static_cast<unsigned char>(text_[next_])) != 0) {
        ++next_;
      } else {
        return false;
      }
    }
    return true;
  }

  // Takes the character if it is the next one.
  bool Take(char c) {
    if (AtEnd() || text_[next_] != c) return false;
    last_ = next_++;
    return true;
  }

  // Takes a name, a number or the like; "" if there is none.
  std::string_view TakeWord() {
    if (AtEnd()) return "";
    last_ = next_;
    const auto is_in_word = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '+' ||
             c == '-';
    };
    while (next_ < text_.size() && is_in_word(text_[next_])) ++next_;
    return text_.substr(last_, next_ - last_);
  }

  // Takes strings in quotes, which are joined if there are several; nullopt if there is none.
  std::optional<std::string> TakeString() {
    std::optional<std::string> joined;
    while (!AtEnd() && (text_[next_] == '"' || text_[next_] == '\'')) {
      if (!joined) joined.emplace();
      last_ = next_;
      const char quote = text_[next_++];
      while (true) {
        if (next_ == text_.size() || text_[next_] == '\n') Refuse("a string without an end");
        const char c = text_[next_++];
        if (c == quote) break;
        *joined += c == '\\' ? TakeEscape() : c;
      }
    }
    return joined;
  }

  [[noreturn]] void Refuse(std::string_view got) const {
    const auto line = 1 + std::ranges::count(text_.substr(0, last_), '\n');
    throw DataError(
        fmt::format("[io.tf_checkpoint] line {}: got {}, want lines such as {}: \"model.ckpt-120\"",
                    line, got, kLatest));
  }

 private:
  // Takes what follows a backslash, as in C.
  char TakeEscape() {
    if (next_ == text_.size()) Refuse("a string without an end");
    const char c = text_[next_++];
    constexpr std::string_view kNames = "abfnrtv\\'\"?", kMeanings = "\a\b\f\n\r\t\v\\'\"?";
    if (const size_t i = kNames.find(c); i != kNames.npos) return kMeanings[i];
    if (c == 'x' || c == 'X') return TakeNumber(16, 2);
    if (c < '0' || c > '7')
      Refuse("an unknown escape in a string (Windows paths need two backslashes)");
    --next_;
    return TakeNumber(8, 3);
  }

  char TakeNumber(int base, size_t max_digits) {
    const size_t begin = next_;
    int value = 0;
    for (; next_ < text_.size() && next_ - begin < max_digits; ++next_) {
      const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(text_[next_])));
      const int digit = c >= 'a' ? c - 'a' + 10 : c - '0';
      if (digit < 0 || digit >= base) break;
      value = value * base + digit;
    }
    if (next_ == begin) Refuse("an escape without digits in a string");
    return static_cast<char>(value);
  }

  const std::string_view text_;
  size_t next_ = 0;
  size_t last_ = 0;  // where the last token begins
};

// Takes the value of a field: a string, a word or a list of them. Returns the text of a single
// string; nullopt for other values.
std::optional<std::string> TakeValue(TextReader& reader, std::string_view field) {
  if (!reader.Take('[')) {
    std::optional<std::string> value = reader.TakeString();
    if (!value && reader.TakeWord().empty()) reader.Refuse(fmt::format("no value of {}", field));
    return value;
  }
  while (!reader.Take(']')) {
    if (!reader.TakeString() && reader.TakeWord().empty()) reader.Refuse("a list without an end");
    (void)reader.Take(',');
  }
  return std::nullopt;
}

}  // namespace

std::string ParseCheckpointState(std::string_view text) {
  TextReader reader(text);
  std::string latest;
  while (!reader.AtEnd()) {
    const std::string_view field = reader.TakeWord();
    if (field.empty()) reader.Refuse("something else");
    if (!reader.Take(':')) reader.Refuse(fmt::format("no colon after {}", field));
    const std::optional<std::string> value = TakeValue(reader, field);
    (void)(reader.Take(';') || reader.Take(','));
    if (field != kLatest) continue;
    if (!value) reader.Refuse(fmt::format("a value of {} without quotes", field));
    if (!latest.empty()) reader.Refuse(fmt::format("several values of {}", field));
    latest = *value;
  }
  if (latest.empty()) {
    throw DataError(
        fmt::format("[io.tf_checkpoint] names no checkpoint: want a line such as {}: "
                    "\"model.ckpt-120\"",
                    kLatest));
  }
  return latest;
}

}  // namespace carole::io
