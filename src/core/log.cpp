#include "src/core/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>

namespace carole {
namespace {

struct LogState {
  std::shared_ptr<spdlog::logger> logger;
  std::string rank_prefix;
  bool quiet = false;  // whether information is dropped (ranks other than 0)
  std::atomic<void (*)()> hook{nullptr};
  std::atomic<std::string (*)(std::string_view)> rewrite{nullptr};
};

LogState& State() {
  static LogState state;
  static const bool ready = [] {
    LogState& s = state;
    s.logger = std::make_shared<spdlog::logger>("carole",
                                                std::make_shared<spdlog::sinks::stderr_sink_mt>());
    s.logger->set_pattern("%L %H:%M:%S.%e %v");
    s.logger->flush_on(spdlog::level::info);
    return true;
  }();
  (void)ready;
  return state;
}

}  // namespace

void SetLogRank(int rank, int size) {
  LogState& state = State();
  state.rank_prefix = size > 1 ? fmt::format("[rank {}] ", rank) : "";
  const char* all = std::getenv("CAROLE_LOG_ALL_RANKS");
  state.quiet = rank != 0 && (all == nullptr || std::string_view(all) != "1");
}

void SetLogHook(void (*before_line)()) { State().hook = before_line; }

void SetLogRewrite(std::string (*rewrite)(std::string_view text)) { State().rewrite = rewrite; }

void LogLine(LogLevel level, std::string_view tag, const std::string& text) {
  LogState& state = State();
  if (state.quiet && level < LogLevel::kWarning) return;
  if (auto hook = state.hook.load()) hook();
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                          spdlog::level::err};
  const std::string tag_text = tag.empty() ? "" : fmt::format("[{}] ", tag);
  const auto rewrite = state.rewrite.load();
  state.logger->log(kLevels[static_cast<int>(level)], "{}{}{}", state.rank_prefix, tag_text,
                    rewrite ? rewrite(text) : text);
}

}  // namespace carole
