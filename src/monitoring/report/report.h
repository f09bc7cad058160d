// Keeps train_dir/report.html up to date.
#pragma once

#include <chrono>
#include <string>

#include "src/monitoring/report/report_page.h"
#include "src/train/loop/training_callback.h"

namespace carole::monitoring {

struct ReportOptions {
  std::string folder;
  ReportFacts facts;  // step, epoch, status and date are filled in as the run goes
};

// For rank 0. The file is replaced as a whole: when the run begins, after evaluations and saves, at
// the end, and in between every few seconds, so rarely that it costs less than 0.5 % of the time.
// A run that goes on takes the curves of the file that it finds. A disk that refuses it does not
// stop the run.
class Report final : public train::TrainingCallback {
 public:
  explicit Report(ReportOptions options);
  ~Report() override;  // says that the run failed, unless it has ended

  void Started(const train::RunState& state) override;
  void StepEnded(const train::AppliedStep& step) override;
  void Evaluated(int64_t step, const train::Metrics& metrics, double seconds) override;
  void Saved(int64_t step, double seconds) override;
  void Ended(const train::RunState& state, bool finished) override;

 private:
  using Clock = std::chrono::steady_clock;

  void TakeUp(int64_t step);
  void Write(const std::string& status);

  const std::string path_;
  ReportFacts facts_;
  History history_;
  bool is_open_ = false;  // between Started() and Ended()
  Clock::time_point last_write_, next_write_;
  bool warned_ = false;
};

}  // namespace carole::monitoring
