#include "src/commands/setup/callbacks.h"

#include <fmt/format.h>

#include <set>

#include "launch/machine/cores.h"
#include "src/commands/cli/version.h"
#include "src/core/files/disk.h"
#include "src/core/text/parse_number.h"
#include "src/monitoring/progress/progress.h"
#include "src/monitoring/report/report.h"
#include "src/monitoring/tensorboard/summaries.h"
#include "src/monitoring/trace/trace.h"

namespace carole::commands {
namespace {

// Given flags that say where, not what.
const std::set<std::string> kPlaces = {"dataset_dir", "train_dir", "log_dir", "work_dir", "trace"};

// A number or a truth where the text is one.
io::HyperParameter MakeParameter(const std::string& name, const std::string& text) {
  if (text == "true" || text == "false") return {name, text == "true"};
  if (const auto number = ParseNumber<double>(text)) return {name, *number};
  return {name, text};
}

// Those that always are, and further ones that were given.
std::vector<io::HyperParameter> AllParameters(const MonitoredRun& run) {
  std::vector<io::HyperParameter> all = run.parameters;
  std::set<std::string> names = kPlaces;
  for (const auto& [name, value] : all) names.insert(name);
  for (const auto& [name, value] : run.flags) {
    if (names.insert(name).second) all.push_back(MakeParameter(name, value));
  }
  return all;
}

monitoring::ReportOptions MakeReportOptions(const MonitoredRun& run, const Job& job) {
  monitoring::ReportFacts facts{
      .title = std::string(run.input.net->name) + " on " + std::string(run.input.dataset->name),
      .max_steps = run.max_steps,
      .settings = run.settings,
      .class_names = run.class_names};
  const collectives::Communicator& ranks = job.communicator();
  std::string names;
  for (int rank = 0; rank < ranks.size(); ++rank)
    names += (rank == 0 ? "" : ", ") + ranks.NameOf(rank);
  facts.settings.emplace_back(
      "machine", fmt::format("{}; cores of rank 0: {}; hosts: {}", launch::ModelOfCpu(),
                             job.cores(), ranks.num_hosts()));
  facts.settings.emplace_back("places", names);
  facts.settings.emplace_back("flags", JoinFlags(run.flags));
  facts.settings.emplace_back("program", std::string("carole ") + Version());
  return {.folder = run.train_dir, .facts = facts};
}

monitoring::SummaryOptions MakeSummaryOptions(const MonitoringFlags& flags,
                                              const MonitoredRun& run) {
  return {.folder = run.log_dir.empty() ? run.train_dir : run.log_dir,
          .every_steps = run.save_summaries_steps,
          .every_secs = run.save_summaries_secs,
          .max_steps = run.max_steps,
          .num_images = flags.image_summaries,
          .image_size = run.input.image_size,
          .channels = run.input.channels,
          .preprocessing = &io::FindPreprocessing(run.input.preprocessing),
          .histograms = flags.histograms,
          .parameters = AllParameters(run)};
}

}  // namespace

void AddMonitoringFlags(CommandLine& line, MonitoringFlags& flags) {
  line.Group("Watching");
  line.AddBool("report", flags.report, "train_dir/report.html, for any browser");
  line.AddNonNegative("image_summaries", flags.image_summaries,
                      "images of the batch in each summary, as the net gets them");
  line.AddBool("histograms", flags.histograms,
               "summaries hold weights, gradients and end points; takes time, and memory for all "
               "end points, each of which 16 bits round: other numbers than without");
  line.Add("trace", flags.trace,
           "file for ui.perfetto.dev: phases and collectives of all ranks on one clock");
  line.Add("trace_steps", flags.trace_steps,
           "what the trace holds: so many last steps, or FIRST:LAST, counted from 0");
  line.AddBool("trace_kernels", flags.trace_kernels, "the trace holds each kernel, too");
}

std::vector<std::unique_ptr<train::TrainingCallback>> MakeCallbacks(const MonitoringFlags& flags,
                                                                    const MonitoredRun& run,
                                                                    train::TrainStep& step,
                                                                    const Job& job) {
  std::vector<std::unique_ptr<train::TrainingCallback>> watchers;
  if (!flags.trace.empty()) {
    RequireNoDevice("flags", flags.trace);
    monitoring::TraceOptions options{.path = flags.trace, .kernels = flags.trace_kernels};
    monitoring::ParseTraceSteps(flags.trace_steps, options);
    watchers.push_back(std::make_unique<monitoring::Trace>(options, step, job.communicator()));
  }
  if (!job.is_chief()) return watchers;
  watchers.push_back(std::make_unique<monitoring::Progress>(monitoring::ProgressOptions{
      .max_steps = run.max_steps, .eval_every = run.eval_every, .time_left = run.time_left}));
  if (run.train_dir.empty()) return watchers;
  watchers.push_back(std::make_unique<monitoring::Summaries>(MakeSummaryOptions(flags, run), step));
  if (flags.report)
    watchers.push_back(std::make_unique<monitoring::Report>(MakeReportOptions(run, job)));
  return watchers;
}

}  // namespace carole::commands
