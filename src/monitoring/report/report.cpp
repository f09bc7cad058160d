#include "src/monitoring/report/report.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <utility>

#include "src/core/files/best_effort_file.h"
#include "src/core/log.h"

namespace carole::monitoring {
namespace {

constexpr char kRunning[] = "running";
constexpr uintmax_t kMaxBytes = 64 << 20;                // of a report that is read back
constexpr auto kMinInterval = std::chrono::seconds(1);   // between two writes after saves
constexpr auto kStepInterval = std::chrono::seconds(5);  // least time between writes after steps
constexpr int kIntervalPerCost = 200;  // a write of 0.1 s is followed by a pause of 20 s

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
    : path_(options.folder + "/report.html"), info_(std::move(options.info)) {}

Report::~Report() {
  if (!is_open_) return;
  try {
    Write("failed; see the log");
  } catch (const std::exception& error) {
    LogError("watch", "{}", error.what());
  }
}

void Report::OnTrainBegin(const train::RunState& state) {
  is_open_ = true;
  info_.step = state.step;
  info_.epochs = static_cast<double>(state.epoch);
  if (state.step > 0) LoadHistory(state.step);
  Write(kRunning);
}

void Report::LoadHistory(int64_t step) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path_, error);
  if (error) return;
  try {
    if (bytes > kMaxBytes) throw DataError("[watch] report: the file is too large for a report");
    history_ = ReadHistoryFromReport(ReadFileOrEmpty(path_));
    history_.RewindTo(step);
  } catch (const std::exception& failure) {
    LogWarning("watch", "{}: cannot read the curves so far; they start anew: {}", path_,
               WithoutTag(failure.what()));
  }
}

void Report::OnStepEnd(const train::AppliedStep& step) {
  info_.step = step.state.step;
  info_.epochs =
      static_cast<double>(step.state.epoch) +
      static_cast<double>(step.state.position) / static_cast<double>(step.source.num_samples());
  info_.unsaved = step.unsaved;
  history_.AddStep(MakeRow(step));
  if (Clock::now() >= next_write_) Write(kRunning);
}

void Report::OnEvaluationEnd(int64_t step, const train::Metrics& metrics, double seconds) {
  history_.AddSeconds(kEvalSeconds, seconds);
  history_.AddEvaluation({.step = step,
                          .accuracy = metrics.accuracy(),
                          .recall_5 = metrics.recall_5(),
                          .loss = metrics.loss()});
  history_.SetConfusion(Confusion::Of(metrics, step));
  Write(kRunning);
}

void Report::OnSave(int64_t /*step*/, double seconds) {
  history_.AddSeconds(kSaveSeconds, seconds);
  // A run that is killed resumes from this checkpoint, so the report should hold its curves.
  if (Clock::now() >= last_write_ + kMinInterval) Write(kRunning);
}

// Sets a row of the table of settings; adds it if it is missing.
void Report::Set(const std::string& row, const std::string& value) {
  auto& settings = info_.settings;
  const auto found = std::ranges::find(settings, row, [](const auto& s) { return s.first; });
  if (found == settings.end()) {
    settings.emplace_back(row, value);
  } else {
    found->second = value;
  }
}

void Report::OnTrainEnd(const train::RunState& state, bool finished) {
  is_open_ = false;
  info_.step = state.step;
  info_.unsaved.reset();  // the last checkpoint is on the disk
  Write(finished ? "finished" : "stopped; run the same command again to resume");
}

void Report::Write(const std::string& status) {
  const Clock::time_point start = Clock::now();
  info_.status = status;
  info_.is_running = status == kRunning;
  info_.updated = std::time(nullptr);
  const std::error_code error = ReplaceFile(path_, MakeReport(info_, history_));
  if (error && !std::exchange(warned_, true))
    LogWarning("watch", "{}: cannot be written: {}; the run continues", path_, error.message());
  const Clock::time_point now = Clock::now();
  last_write_ = now;
  next_write_ = now + std::max<Clock::duration>(kStepInterval, (now - start) * kIntervalPerCost);
}

}  // namespace carole::monitoring
