// What of a training run is written down for people: flags to watchers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/events/event_writer.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/setup/inputs.h"
#include "src/commands/setup/rank_context.h"
#include "src/train/loop/training_callback.h"

namespace carole::commands {

struct MonitoringFlags {
  std::string trace;  // path; empty: none
  std::string trace_steps = "100";
  bool trace_kernels = false;
  bool report = true;
  int image_summaries = 3;
  bool histograms = false;
};
void AddMonitoringFlags(CommandLine& line, MonitoringFlags& flags);

// What watchers want to know of the run.
struct MonitoredRun {
  std::string train_dir;             // "": nothing is written there
  std::string log_dir;               // of event files; "": train_dir
  int64_t save_summaries_steps = 0;  // 0: by time
  double save_summaries_secs = 600;
  int64_t max_steps = 0;              // 0: no end
  int64_t eval_every = 0;             // 0: never
  std::function<double()> time_left;  // seconds until it is stopped, or infinite
  NetInput input;
  std::vector<std::pair<std::string, std::string>> settings;  // for people
  // For comparing runs, and what was given, as NAME=VALUE.
  std::vector<io::HyperParameter> parameters;
  GivenFlags flags;
  std::vector<std::string> class_names;
};

// On each rank; step and job outlive them. Throws UsageError for values that make no sense.
std::vector<std::unique_ptr<train::TrainingCallback>> MakeCallbacks(const MonitoringFlags& flags,
                                                                    const MonitoredRun& run,
                                                                    train::TrainStep& step,
                                                                    const Job& job);

}  // namespace carole::commands
