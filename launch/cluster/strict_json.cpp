#include "launch/cluster/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "launch/cluster/message_text.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 16;
constexpr size_t kContext = 16;  // bytes of text before an error that a message shows

// Callback of the parser. Refuses what the parser itself accepts: duplicate keys and deep nesting.
// Follows the path to the current value for its messages.
class StrictnessCheck {
 public:
  explicit StrictnessCheck(const std::string& where) : where_(where) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      CountElement();
      if (depth >= kMaxDepth)
        throw ConfigError(fmt::format("{}: nested too deeply: got more than {} levels, want 3",
                                      where_, kMaxDepth));
      levels_.push_back({.is_list = event == Event::array_start});
    } else if (event == Event::object_end || event == Event::array_end) {
      levels_.pop_back();
    } else if (event == Event::key) {
      levels_.back().key = value.get<std::string>();
      if (!levels_.back().keys.insert(levels_.back().key).second)
        throw ConfigError(
            fmt::format("{}: duplicate key: got {} twice, want it once", where_, Quote(Path())));
    } else {
      CountElement();
    }
    return true;
  }

 private:
  struct Level {
    bool is_list = false;
    std::string key = {};
    int index = -1;
    std::set<std::string> keys = {};
  };

  // Counts the elements of the innermost list. Called at the start of each value.
  void CountElement() {
    if (!levels_.empty()) ++levels_.back().index;
  }

  std::string Path() const {
    std::string path;
    for (const Level& level : levels_)
      path =
          level.is_list ? fmt::format("{}[{}]", path, level.index) : JoinJsonPath(path, level.key);
    return path;
  }

  const std::string& where_;
  std::vector<Level> levels_;
};

[[noreturn]] void RefuseSyntax(const std::string& where, std::string_view text, size_t byte) {
  const size_t end = std::min(byte, text.size());  // `byte` counts from 1
  const size_t begin = end > kContext ? end - kContext : 0;
  if (byte > text.size())
    throw ConfigError(fmt::format(
        "{}: malformed JSON: got the end of the text after {}, want one complete object", where,
        Quote(text.substr(begin, end - begin))));
  throw ConfigError(fmt::format("{}: malformed JSON at byte {}: got {} there, want one object",
                                where, byte, Quote(text.substr(begin, end - begin))));
}

}  // namespace

Json ParseStrictJson(const std::string& where, std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes)
    throw ConfigError(
        fmt::format("{}: too long: got {} bytes, want at most {}", where, text.size(), max_bytes));
  StrictnessCheck check(where);
  try {
    return Json::parse(text, std::ref(check));
  } catch (const Json::parse_error& error) {
    RefuseSyntax(where, text, error.byte);
  } catch (const Json::exception&) {  // 1e999
    throw ConfigError(
        fmt::format("{}: malformed JSON: got a number out of range, want a smaller one", where));
  }
}

std::string DescribeJson(const Json& value) {
  if (value.is_string()) return Quote(value.get_ref<const std::string&>());
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return "an object";
  return value.dump();
}

std::string JoinJsonPath(const std::string& path, const std::string& key) {
  const bool is_word =
      !key.empty() && key.size() < 64 && std::all_of(key.begin(), key.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
      });
  const std::string name = is_word ? key : Quote(key);
  return path.empty() ? name : path + "." + name;
}

}  // namespace carole::launch
