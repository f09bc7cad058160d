// Makes report.html: the curves, results and settings of a run in one file. The page needs neither
// the network nor scripts. With scripts, it shows the values under the mouse pointer.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/monitoring/report/history.h"
#include "src/train/evaluation/metrics.h"
#include "src/train/loop/epoch_history.h"
#include "src/train/loop/training_callback.h"

namespace carole::monitoring {

struct ReportInfo {
  std::string title;        // "lenet on fashion_mnist"
  std::string status;       // "running", "finished", ...
  bool is_running = false;  // if true, the browser reloads the page from time to time
  int64_t step = 0;
  int64_t max_steps = 0;  // 0: no limit
  double epochs = 0;      // passes over the data so far
  std::time_t updated = 0;
  std::vector<std::pair<std::string, std::string>> settings;  // names and values, for a table
  std::vector<std::string> class_names;                       // may be fewer than classes
  train::EpochHistory ledger;                                 // empty: no table
  std::optional<train::UnsavedWork> unsaved;  // lost if the job died now; nullopt: nothing
};

// Returns the page as HTML. The history is embedded as JSON, too.
std::string MakeReport(const ReportInfo& info, const History& history);

// Returns the history that is embedded in a page of MakeReport(). Throws DataError if there is
// none.
History ReadHistoryFromReport(std::string_view page);

// For a page that shows only the confusion matrix, in the style of the report.
struct ConfusionPageInfo {
  std::string title;
  int64_t step = 0;  // of the checkpoint
  std::vector<std::string> class_names;
};
std::string MakeConfusionPage(const ConfusionPageInfo& info, const train::Metrics& metrics);

}  // namespace carole::monitoring
