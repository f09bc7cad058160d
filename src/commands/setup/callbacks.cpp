#include "src/commands/setup/callbacks.h"

#include <fmt/format.h>

#include <set>

#include "launch/machine/cores.h"
#include "src/commands/cli/version.h"
#include "src/core/files/disk.h"
#include "src/core/text/parse_number.h"
#include "src/monitoring/progress/progress.h"
#include "src/monitoring/report/report.h"

namespace carole::commands {
namespace {

// Flags that say where files are. They do not describe the training, so they are no parameters.
const std::set<std::string> kPathFlags = {"dataset_dir", "train_dir", "log_dir", "work_dir",
                                          "trace"};

// Makes a number or a bool of a text that is one.
io::HyperParameter MakeParameter(const std::string& name, const std::string& text) {
  if (text == "true" || text == "false") return {name, text == "true"};
  if (const auto number = ParseNumber<double>(text)) return {name, *number};
  return {name, text};
}

// Returns the parameters that are always shown, and then the other flags that were given.
std::vector<io::HyperParameter> CollectParameters(const RunDescription& run) {
  std::vector<io::HyperParameter> all = run.parameters;
  std::set<std::string> names = kPathFlags;
  for (const auto& [name, value] : all) names.insert(name);
  for (const auto& [name, value] : run.flags) {
    if (names.insert(name).second) all.push_back(MakeParameter(name, value));
  }
  return all;
}

monitoring::ReportOptions MakeReportOptions(const RunDescription& run, const RankContext& context) {
  monitoring::ReportInfo info{
      .title = std::string(run.input.net->name) + " on " + std::string(run.input.dataset->name),
      .max_steps = run.max_steps,
      .settings = run.settings,
      .class_names = run.class_names};
  const collectives::Communicator& ranks = context.communicator();
  std::string names;
  for (int rank = 0; rank < ranks.size(); ++rank)
    names += (rank == 0 ? "" : ", ") + ranks.NameOf(rank);
  info.settings.emplace_back(
      "machine", fmt::format("{}; cores of rank 0: {}; hosts: {}", launch::CpuModelName(),
                             context.cores(), ranks.num_hosts()));
  info.settings.emplace_back("places", names);
  info.settings.emplace_back("flags", JoinFlags(run.flags));
  info.settings.emplace_back("program", std::string("carole ") + Version());
  return {.folder = run.train_dir, .info = info};
}

monitoring::SummaryOptions MakeSummaryOptions(const MonitoringConfig& config,
                                              const RunDescription& run) {
  monitoring::SummaryOptions options = config.summaries;
  if (options.folder.empty()) options.folder = run.train_dir;
  options.max_steps = run.max_steps;
  options.image_size = run.input.image_size;
  options.channels = run.input.channels;
  options.preprocessing = &io::FindPreprocessing(run.input.preprocessing);
  options.parameters = CollectParameters(run);
  return options;
}

}  // namespace

void AddMonitoringFlags(CommandLine& line, MonitoringConfig& config, std::string& trace_steps) {
  monitoring::SummaryOptions& summaries = config.summaries;
  line.Group("Run and checkpoints");
  line.AddPath("log_dir", summaries.folder, "Folder of event files; empty: --train_dir.");
  line.Group("Monitoring");
  line.AddNonNegative("save_summaries_steps", summaries.every_steps,
                      "Steps between summaries; 0: see --save_summaries_secs.");
  line.AddNonNegative("save_summaries_secs", summaries.every_secs,
                      "Seconds between summaries; 0: only of the first and the last step.");
  line.Add("report", config.report, "Write train_dir/report.html, a report for browsers.");
  line.AddNonNegative("image_summaries", summaries.num_images,
                      "Number of images of the batch in each summary, as the net gets them.");
  line.Add("histograms", summaries.histograms,
           "Add histograms of weights, gradients and end points to summaries; needs time and "
           "memory, and changes results slightly with 16-bit types, which round end points.");
  line.AddPath("trace", config.trace.path,
               "Write a trace of all ranks to this file, for ui.perfetto.dev.", HelpLevel::kBasic);
  line.Add("trace_steps", trace_steps,
           "Steps that --trace records: the last N, or FIRST:LAST counted from 0.");
  line.Add("trace_kernels", config.trace.kernels,
           "Record each kernel in --trace, in addition to phases and collectives.");
}

std::vector<std::unique_ptr<train::TrainingCallback>> MakeCallbacks(const MonitoringConfig& config,
                                                                    const RunDescription& run,
                                                                    train::TrainStep& step,
                                                                    const RankContext& context) {
  std::vector<std::unique_ptr<train::TrainingCallback>> callbacks;
  if (!config.trace.path.empty()) {
    RejectSpecialFile("flags", config.trace.path);
    callbacks.push_back(std::make_unique<monitoring::Trace>(
        config.trace, step, context.communicator(), context.diagnostics()));
  }
  if (!context.is_chief()) return callbacks;
  callbacks.push_back(std::make_unique<monitoring::Progress>(monitoring::ProgressOptions{
      .max_steps = run.max_steps, .eval_every = run.eval_every, .time_left = run.time_left}));
  if (run.train_dir.empty()) return callbacks;
  callbacks.push_back(
      std::make_unique<monitoring::Summaries>(MakeSummaryOptions(config, run), step));
  if (config.report)
    callbacks.push_back(std::make_unique<monitoring::Report>(MakeReportOptions(run, context)));
  return callbacks;
}

}  // namespace carole::commands
