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
#include "src/monitoring/tensorboard/summaries.h"
#include "src/monitoring/trace/trace.h"
#include "src/train/loop/training_callback.h"

namespace carole::commands {

struct MonitoringConfig {
  monitoring::TraceOptions trace;  // an empty path: no trace
  // An empty folder: train_dir. MakeCallbacks() adds what follows from the run.
  monitoring::SummaryOptions summaries;
  bool report = true;
};
// `trace_steps`: the value of --trace_steps, which monitoring::ParseTraceSteps() reads.
void AddMonitoringFlags(CommandLine& line, MonitoringConfig& config, std::string& trace_steps);

// The facts about a run that callbacks show.
struct RunDescription {
  std::string train_dir;              // "": nothing is written there
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
std::vector<std::unique_ptr<train::TrainingCallback>> MakeCallbacks(const MonitoringConfig& config,
                                                                    const RunDescription& run,
                                                                    train::TrainStep& step,
                                                                    const RankContext& context);

}  // namespace carole::commands
