#include "src/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>

#include "src/core/log.h"

namespace carole::train {
namespace {

std::atomic<bool> on_screen{false};

void Clear() {
  if (on_screen.exchange(false)) std::fputs("\r\033[K", stderr);
}

}  // namespace

std::string FormatProgress(const ProgressValues& v) {
  std::string text;
  if (v.max_steps > 0) {
    constexpr int64_t kWidth = 20;
    const int64_t done = std::clamp<int64_t>(v.step * kWidth / v.max_steps, 0, kWidth);
    text = fmt::format("[{}{}] {:3} %  step {}/{}", std::string(done, '#'),
                       std::string(kWidth - done, '.'), v.step * 100 / v.max_steps, v.step,
                       v.max_steps);
  } else {
    text = fmt::format("step {}", v.step);
  }
  text += fmt::format("  loss {:.4f}  {:.0f} images/s", v.loss, v.images_per_second);
  if (v.max_steps > 0) {
    const int64_t left = std::lround(v.seconds_left);
    text += fmt::format("  {}:{:02}:{:02} left", left / 3600, left / 60 % 60, left % 60);
  }
  return text;
}

ProgressLine::ProgressLine(bool enabled) : enabled_(enabled && isatty(STDERR_FILENO) == 1) {
  if (enabled_) SetLogHook(Clear);
}

ProgressLine::~ProgressLine() {
  if (!enabled_) return;
  Clear();
  SetLogHook(nullptr);
}

void ProgressLine::Show(const ProgressValues& values) {
  if (!enabled_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(200)) return;
  last_ = now;
  std::fputs(("\r" + FormatProgress(values) + "\033[K").c_str(), stderr);
  std::fflush(stderr);
  on_screen = true;
}

}  // namespace carole::train
