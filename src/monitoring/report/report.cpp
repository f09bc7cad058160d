#include "src/monitoring/report/report.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <utility>

#include "src/core/files/small_file.h"
#include "src/core/log.h"

namespace carole::monitoring {
namespace {

constexpr char kRunning[] = "running";
constexpr uintmax_t kMaxBytes = 64 << 20;
constexpr auto kLeast = std::chrono::seconds(1);
constexpr auto kSeldom = std::chrono::seconds(5);
constexpr int kRest = 200;  // between writes, times what one took

Row MakeRow(const train::AppliedStep& step) {
  Row row{};
  const train::StepResult& result = step.result;
  row[kStep] = static_cast<double>(step.state.step);
  row[kSteps] = 1;
  row[kImages] = static_cast<double>(step.result.batch.global_valid);
  row[kSeconds] = step.seconds;
  row[kTotalLoss] = result.total_loss;
  row[kDataLoss] = result.data_loss;
  row[kRegularization] = result.regularization_loss;
  row[kAccuracy] = result.accuracy;
  row[kLearningRate] = step.learning_rate;
  row[kGradientNorm] = result.gradient_norm;
  row[kInputMs] = result.input_ms;
  row[kForwardMs] = result.forward_ms;
  row[kBackwardMs] = result.backward_ms;
  row[kExposedMs] = result.exposed_communication_ms;
  row[kOptimizerMs] = result.optimizer_ms;
  return row;
}

}  // namespace

Report::Report(ReportOptions options)
    : path_(options.folder + "/report.html"), facts_(std::move(options.facts)) {}

Report::~Report() {
  if (!is_open_) return;
  try {
    Write("failed; the log says why");
  } catch (const std::exception& error) {
    LogError("watch", "{}", error.what());
  }
}

void Report::Started(const train::RunState& state) {
  is_open_ = true;
  facts_.step = state.step;
  facts_.epochs = static_cast<double>(state.epoch);
  if (state.step > 0) TakeUp(state.step);
  Write(kRunning);
}

void Report::TakeUp(int64_t step) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path_, error);
  if (error) return;
  try {
    if (bytes > kMaxBytes) throw DataError("[watch] report: larger than any of ours");
    history_ = HistoryOfReport(ReadSmallFile(path_));
    history_.RewindTo(step);
  } catch (const std::exception& failure) {
    LogWarning("watch", "{}: its curves are not taken up: {}", path_, WithoutTag(failure.what()));
  }
}

void Report::StepEnded(const train::AppliedStep& step) {
  facts_.step = step.state.step;
  facts_.epochs =
      static_cast<double>(step.state.epoch) +
      static_cast<double>(step.state.position) / static_cast<double>(step.source.num_samples());
  history_.AddStep(MakeRow(step));
  if (Clock::now() >= next_write_) Write(kRunning);
}

void Report::Evaluated(int64_t step, const train::Metrics& metrics, double seconds) {
  history_.AddSeconds(kEvalSeconds, seconds);
  history_.AddEvaluation({.step = step,
                          .accuracy = metrics.accuracy(),
                          .recall_5 = metrics.recall_5(),
                          .loss = metrics.loss()});
  history_.SetConfusion(Confusion::Of(metrics, step));
  Write(kRunning);
}

void Report::Saved(int64_t /*step*/, double seconds) {
  history_.AddSeconds(kSaveSeconds, seconds);
  // A run that is killed goes on from here: so do its curves.
  if (Clock::now() >= last_write_ + kLeast) Write(kRunning);
}

void Report::Ended(const train::RunState& state, bool finished) {
  is_open_ = false;
  facts_.step = state.step;
  Write(finished ? "finished" : "stopped; the same command goes on");
}

void Report::Write(const std::string& status) {
  const Clock::time_point start = Clock::now();
  facts_.status = status;
  facts_.is_running = status == kRunning;
  facts_.updated = std::time(nullptr);
  const std::error_code error = ReplaceSmallFile(path_, MakeReport(facts_, history_));
  if (error && !std::exchange(warned_, true))
    LogWarning("watch", "{} cannot be written; the run goes on: {}", path_, error.message());
  const Clock::time_point now = Clock::now();
  last_write_ = now;
  next_write_ = now + std::max<Clock::duration>(kSeldom, (now - start) * kRest);
}

}  // namespace carole::monitoring
