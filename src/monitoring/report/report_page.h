// report.html: a run's curves, results and settings in one file that needs neither network nor
// scripts; with scripts, values show under the pointer.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/monitoring/report/history.h"
#include "src/train/evaluation/metrics.h"

namespace carole::monitoring {

struct ReportFacts {
  std::string title;        // "lenet on fashion_mnist"
  std::string status;       // "running", "finished", …
  bool is_running = false;  // browsers then look for news now and then
  int64_t step = 0;
  int64_t max_steps = 0;  // 0: no end
  double epochs = 0;      // passes over the data so far
  std::time_t updated = 0;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::string> class_names;  // may be fewer than classes
};

std::string MakeReport(const ReportFacts& facts, const History& history);

// The history that a page of MakeReport() carries. Throws DataError when it carries none.
History HistoryOfReport(std::string_view page);

// The confusion matrix alone, in the report's style.
struct ConfusionFacts {
  std::string title;
  int64_t step = 0;  // of the checkpoint
  std::vector<std::string> class_names;
};
std::string MakeConfusionPage(const ConfusionFacts& facts, const train::Metrics& metrics);

}  // namespace carole::monitoring
