#include "src/core/files/tuning_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "src/core/check.h"
#include "src/core/files/best_effort_file.h"
#include "src/core/hash.h"
#include "src/core/log.h"

namespace carole {
namespace {

constexpr size_t kMaxBytes = 16 << 20;

std::string Header(const std::string& body) {
  return fmt::format("carole choices 1 {:016x}\n", Fnv1a64(body));
}

bool IsOneField(const std::string& text) { return text.find_first_of("\t\n") == std::string::npos; }

// Returns the content of the file; nullopt if it does not exist, "" if it is too large.
std::optional<std::string> ReadIfPresent(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  return std::filesystem::file_size(path, error) <= kMaxBytes ? ReadFileOrEmpty(path) : "";
}

}  // namespace

TuningCache::TuningCache(std::string path, std::string platform)
    : path_(std::move(path)), platform_(std::move(platform)) {
  CAROLE_CHECK(IsOneField(platform_), "tabs or line ends in: {}", platform_);
  Read();
}

std::string TuningCache::DefaultPath(const std::string& name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/carole/" + name;
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/carole/" + name : "";
}

void TuningCache::Read() {
  const std::optional<std::string> text = path_.empty() ? std::nullopt : ReadIfPresent(path_);
  if (!text) return;
  const std::string body = text->substr(std::min(text->find('\n') + 1, text->size()));
  if (*text != Header(body) + body) {
    LogWarning("cache", "{}: damaged or incomplete cache; ignoring it, it will be written again",
               path_);
    return;
  }
  std::istringstream lines(body);
  std::string platform, task, choice;
  while (std::getline(lines, platform, '\t') && std::getline(lines, task, '\t') &&
         std::getline(lines, choice)) {
    choices_[{platform, task}] = choice;
  }
}

std::optional<std::string> TuningCache::Find(const std::string& task) const {
  const auto found = choices_.find({platform_, task});
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

void TuningCache::Add(const std::string& task, const std::string& choice) {
  CAROLE_CHECK(IsOneField(task) && IsOneField(choice), "tabs or line ends in: {} {}", task, choice);
  if (is_writable_) Read();  // other processes may have added choices
  choices_[{platform_, task}] = choice;
  if (path_.empty() || !is_writable_) return;
  const std::error_code error = Write();
  is_writable_ = !error;
  if (error)
    LogWarning("cache", "{}: cannot write: {}; the next run will measure again", path_,
               error.message());
}

std::error_code TuningCache::Write() const {
  std::string body;
  for (const auto& [key, choice] : choices_)
    body += fmt::format("{}\t{}\t{}\n", key.first, key.second, choice);
  if (body.size() + Header(body).size() > kMaxBytes)
    return std::make_error_code(std::errc::file_too_large);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  return ReplaceFile(path_, Header(body) + body, fmt::format(".{}.part", getpid()));
}

}  // namespace carole
