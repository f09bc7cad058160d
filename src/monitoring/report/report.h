// Writes train_dir/report.html and keeps it up to date during a run.
#pragma once

#include <chrono>
#include <string>

#include "src/monitoring/report/report_page.h"
#include "src/train/loop/training_callback.h"

namespace carole::monitoring {

struct ReportOptions {
  std::string folder;
  ReportInfo info;  // Report fills in step, epochs, status and date during the run
};

// Writes the report; for rank 0 only. The file is replaced as a whole: when the run begins, after
// evaluations and saves, at the end, and every few seconds in between. Writing costs less than 0.5
// % of the time. A resumed run keeps the curves of the report that it finds. A write error causes a
// warning; the run continues.
class Report final : public train::TrainingCallback {
 public:
  explicit Report(ReportOptions options);
  ~Report() override;  // writes that the run failed, unless OnTrainEnd() was called

  void OnTrainBegin(const train::RunState& state) override;
  void OnStepEnd(const train::AppliedStep& step) override;
  void OnEvaluationEnd(int64_t step, const train::Metrics& metrics, double seconds) override;
  void OnSave(int64_t step, double seconds) override;
  void OnLedger(const train::EpochHistory& ledger) override { info_.ledger = ledger; }
  void OnStragglers(const std::string& summary) override { Set("stragglers", summary); }
  void OnDeviceMemory(const std::string& summary) override { Set("device memory", summary); }
  void OnTrainEnd(const train::RunState& state, bool finished) override;

 private:
  using Clock = std::chrono::steady_clock;

  void LoadHistory(int64_t step);
  void Set(const std::string& row, const std::string& value);
  void Write(const std::string& status);

  const std::string path_;
  ReportInfo info_;
  History history_;
  bool is_open_ = false;  // between OnTrainBegin() and OnTrainEnd()
  Clock::time_point last_write_, next_write_;
  bool warned_ = false;
};

}  // namespace carole::monitoring
