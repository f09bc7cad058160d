// Creates the callbacks that record a training run for people: progress, TensorBoard summaries,
// the report, and the trace.
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
  std::string trace;  // path; empty: no trace
  std::string trace_steps = "100";
  bool trace_kernels = false;
  bool report = true;
  int image_summaries = 3;
  bool histograms = false;
};
void AddMonitoringFlags(CommandLine& line, MonitoringFlags& flags);

// The facts about a run that callbacks show.
struct MonitoredRun {
  std::string train_dir;              // "": nothing is written there
  std::string log_dir;                // folder of event files; "": train_dir
  int64_t save_summaries_steps = 0;   // steps between summaries; 0: by time
  double save_summaries_secs = 600;   // seconds between summaries
  int64_t max_steps = 0;              // 0: no end
  int64_t eval_every = 0;             // steps; 0: never
  std::function<double()> time_left;  // seconds until the run is stopped, or infinity
  NetInput input;
  std::vector<std::pair<std::string, std::string>> settings;  // name and text, for people
  std::vector<io::HyperParameter> parameters;                 // always shown, for comparing runs
  GivenFlags flags;                                           // shown in addition
  std::vector<std::string> class_names;
};

// Returns the callbacks of this rank. `step` and `context` must outlive them. Throws UsageError for
// flag values that make no sense.
std::vector<std::unique_ptr<train::TrainingCallback>> MakeCallbacks(const MonitoringFlags& flags,
                                                                    const MonitoredRun& run,
                                                                    train::TrainStep& step,
                                                                    const RankContext& context);

}  // namespace carole::commands
