#include "src/monitoring/progress/progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "src/core/divide_up.h"
#include "src/core/log.h"
#include "src/monitoring/progress/work_progress.h"

namespace carole::monitoring {
namespace {

constexpr double kDecay = 0.98;  // each step multiplies the weight of earlier steps by this
constexpr int kDefaultWidth = 80;
constexpr int64_t kMaxBar = 20, kMinBar = 8;

std::atomic<bool> on_screen{false};

void Clear() {
  if (on_screen.exchange(false)) std::fputs("\r\033[K", stderr);
}

bool SupportsCursorControl() {
  const char* kind = std::getenv("TERM");
  return kind != nullptr && std::string_view(kind) != "dumb";
}

int WidthOf(int terminal) {
  winsize size{};
  return ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultWidth;
}

// Formats the progress in one of four variants, from the longest (0) to the shortest (3). The
// longest one starts with a bar of `bar` characters.
std::string FormatVariant(const ProgressValues& v, int form, int64_t bar = kMaxBar) {
  std::string text;
  if (v.max_steps > 0) {
    const int64_t done = std::clamp<int64_t>(v.step * bar / v.max_steps, 0, bar);
    if (form < 1)
      text = fmt::format("[{}{}] ", std::string(done, '#'), std::string(bar - done, '.'));
    if (form < 3) text += fmt::format("{:3} %  ", v.step * 100 / v.max_steps);
    text += fmt::format("step {}/{}", v.step, v.max_steps);
  } else {
    text = fmt::format("step {}", v.step);
  }
  if (*v.activity != '\0') return text + "  " + v.activity;
  text += fmt::format("  loss {:.4f}", v.loss);
  if (form < 2) {
    const int decimals = v.images_per_second < 10 ? 2 : 0;
    text += fmt::format("  {:.{}f} images/s", v.images_per_second, decimals);
  }
  if (v.stops_early) return text + "  stops in " + FormatTime(v.seconds_left);
  if (v.max_steps > 0) text += "  " + FormatTime(v.seconds_left) + " left";
  return text;
}

// Opens the terminal that shows the standard error of this process, or of the mpirun that started
// it. Returns its file descriptor, which the caller must close, or -1 if there is no terminal.
int OpenTerminal() {
  if (!SupportsCursorControl()) return -1;
  if (isatty(STDERR_FILENO) == 1) return dup(STDERR_FILENO);
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return -1;
  // mpirun reads the output of its processes through pipes and prints it on its own terminal.
  const std::string path = fmt::format("/proc/{}/fd/{}", getppid(), STDERR_FILENO);
  const int terminal = open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (terminal < 0 || isatty(terminal) == 1) return terminal;
  close(terminal);
  return -1;
}

}  // namespace

std::string FormatProgress(const ProgressValues& values, int width) {
  std::string text = FormatVariant(values, 0);
  const int64_t bar = kMaxBar - std::max<int64_t>(0, std::ssize(text) - width);
  if (bar >= kMinBar) return FormatVariant(values, 0, bar);
  for (int form = 1; form <= 3; ++form) {
    text = FormatVariant(values, form);
    if (std::ssize(text) <= width) return text;
  }
  return text.substr(0, static_cast<size_t>(std::max(0, width)));
}

Progress::Progress(const ProgressOptions& options) : options_(options), terminal_(OpenTerminal()) {
  values_.max_steps = options_.max_steps;
  if (terminal_ >= 0) SetLogHook(Clear);
}

Progress::~Progress() {
  if (terminal_ < 0) return;
  Clear();
  SetLogHook(nullptr);
  close(terminal_);
}

void Progress::OnTrainBegin(const train::RunState& state) {
  values_.step = state.step;
  last_ = Clock::now();
}

// Assumes that each further evaluation takes as long as the last one.
double Progress::SecondsLeft(int64_t step) const {
  const int64_t left = options_.max_steps - step;
  int64_t evaluations = 0;
  if (options_.eval_every > 0) {
    evaluations = DivideUp(options_.max_steps, options_.eval_every) - step / options_.eval_every;
  }
  return static_cast<double>(left) * seconds_ / steps_ +
         static_cast<double>(evaluations) * eval_seconds_;
}

void Progress::OnStepEnd(const train::AppliedStep& step) {
  images_ = images_ * kDecay + static_cast<double>(step.result.batch.global_valid);
  seconds_ = seconds_ * kDecay + step.seconds;
  steps_ = steps_ * kDecay + 1;
  values_.step = step.state.step;
  values_.loss = step.result.total_loss;
  values_.images_per_second = images_ / seconds_;
  values_.seconds_left = SecondsLeft(step.state.step);
  if (options_.time_left) {
    const double time_left = options_.time_left();
    values_.stops_early =
        std::isfinite(time_left) && (values_.max_steps == 0 || time_left < values_.seconds_left);
    if (values_.stops_early) values_.seconds_left = std::max(0.0, time_left);
  }
  constexpr std::chrono::milliseconds kOnScreen{200}, kInLog{15'000};
  const auto pause = terminal_ >= 0 ? kOnScreen : kInLog;
  if (Clock::now() - last_ >= pause) Draw();
}

void Progress::Draw() {
  last_ = Clock::now();
  if (terminal_ < 0) {
    LogInfo("train", "{}", FormatVariant(values_, 1));
    return;
  }
  std::fputs(("\r" + FormatProgress(values_, WidthOf(terminal_) - 1) + "\033[K").c_str(), stderr);
  std::fflush(stderr);
  on_screen = true;
}

void Progress::OnEvaluationBegin(int64_t /*step*/) {
  if (terminal_ < 0) return;
  values_.activity = "evaluating";
  Draw();
  values_.activity = "";
}

void Progress::OnEvaluationEnd(int64_t /*step*/, const train::Metrics& /*metrics*/,
                               double seconds) {
  eval_seconds_ = seconds;
}

}  // namespace carole::monitoring
