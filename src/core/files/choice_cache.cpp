#include "src/core/files/choice_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "src/core/check.h"
#include "src/core/files/small_file.h"
#include "src/core/hash.h"
#include "src/core/log.h"

namespace carole {
namespace {

constexpr size_t kMaxBytes = 16 << 20;

std::string HeadLine(const std::string& body) {
  return fmt::format("carole choices 1 {:016x}\n", Fnv1a64(body));
}

bool IsOneField(const std::string& text) { return text.find_first_of("\t\n") == std::string::npos; }

// nullopt: there is no such file. Of one that is too large, nothing.
std::optional<std::string> ReadAll(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  return std::filesystem::file_size(path, error) <= kMaxBytes ? ReadSmallFile(path) : "";
}

}  // namespace

ChoiceCache::ChoiceCache(std::string path, std::string place)
    : path_(std::move(path)), place_(std::move(place)) {
  CAROLE_CHECK(IsOneField(place_), "tabs or line ends in: {}", place_);
  Read();
}

std::string ChoiceCache::DefaultPath(const std::string& name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/carole/" + name;
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/carole/" + name : "";
}

void ChoiceCache::Read() {
  const std::optional<std::string> text = path_.empty() ? std::nullopt : ReadAll(path_);
  if (!text) return;
  const std::string body = text->substr(std::min(text->find('\n') + 1, text->size()));
  if (*text != HeadLine(body) + body) {
    LogWarning("cache", "{}: not whole: it is ignored, and written anew", path_);
    return;
  }
  std::istringstream lines(body);
  std::string place, task, choice;
  while (std::getline(lines, place, '\t') && std::getline(lines, task, '\t') &&
         std::getline(lines, choice)) {
    choices_[{place, task}] = choice;
  }
}

std::optional<std::string> ChoiceCache::Find(const std::string& task) const {
  const auto found = choices_.find({place_, task});
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

void ChoiceCache::Add(const std::string& task, const std::string& choice) {
  CAROLE_CHECK(IsOneField(task) && IsOneField(choice), "tabs or line ends in: {} {}", task, choice);
  if (is_writable_) Read();  // what others have found meanwhile
  choices_[{place_, task}] = choice;
  if (path_.empty() || !is_writable_) return;
  const std::error_code error = Write();
  is_writable_ = !error;
  if (error)
    LogWarning("cache", "{}: cannot be written: {}: choices are not kept", path_, error.message());
}

std::error_code ChoiceCache::Write() const {
  std::string body;
  for (const auto& [key, choice] : choices_)
    body += fmt::format("{}\t{}\t{}\n", key.first, key.second, choice);
  if (body.size() + HeadLine(body).size() > kMaxBytes)
    return std::make_error_code(std::errc::file_too_large);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  return ReplaceSmallFile(path_, HeadLine(body) + body, fmt::format(".{}.part", getpid()));
}

}  // namespace carole
