// carole doctor: looks at machine, MPI, network, data and disk, alone or as ranks of a job; each
// problem comes with its fix.
#include "launch/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "collectives/bench.h"
#include "collectives/mpi/communicator.h"
#include "collectives/nccl/loader.h"
#include "collectives/ranks/rank_local_work.h"
#include "src/backend/backend.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/cli/version.h"
#include "src/commands/setup/data_check.h"
#include "src/commands/setup/rank_context.h"
#include "src/core/error.h"
#include "src/core/host_name.h"
#include "src/core/stopwatch.h"

namespace carole::commands {
namespace {

using collectives::Communicator;
using launch::Finding;
using launch::Verdict;
using Json = nlohmann::ordered_json;

constexpr double kDeadlineSeconds = 5;  // of ranks that do not come
constexpr double kDataSeconds = 3;

struct DoctorFlags {
  DatasetFlags dataset{.dataset_name = "", .dataset_split_name = "train"};
  std::string train_dir;
  MachineFlags machine;
  bool json = false;
};

// The findings of one machine, as they travel between ranks.
struct Report {
  std::string host;
  std::vector<Finding> findings;
};

std::string ToText(const Report& report) {
  Json json{{"host", report.host}, {"findings", Json::array()}};
  for (const Finding& f : report.findings)
    json["findings"].push_back({f.check, static_cast<int>(f.verdict), f.text, f.fix});
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Report FromText(const std::string& text) {
  const Json json = Json::parse(text);
  Report report{.host = json.at("host")};
  for (const Json& f : json.at("findings"))
    report.findings.push_back({f[0], static_cast<Verdict>(f[1].get<int>()), f[2], f[3]});
  return report;
}

// The texts of all ranks.
std::vector<std::string> GatherTexts(Communicator& communicator, const std::string& text) {
  const std::vector<uint64_t> lengths =
      AllGather<uint64_t>(communicator, text.size(), {.what = "lengths"});
  const size_t longest = std::ranges::max(lengths);
  std::string mine = text;
  mine.resize(longest);
  const auto all = AllGatherValues<char>(communicator, mine, {.what = "findings"});
  std::vector<std::string> texts;
  for (size_t r = 0; r < lengths.size(); ++r) texts.emplace_back(&all[r * longest], lengths[r]);
  return texts;
}

// Of the clock on the wall.
double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Ranks leave a barrier within its own time, and then read their clocks.
Finding CheckClocks(Communicator& communicator) {
  double best_skew = 0, best_error = 1e30;
  for (int round = 0; round < 3; ++round) {
    const double start = SteadySeconds();
    communicator.Barrier({.what = "clocks"});
    const double mine[] = {SecondsSince1970(), SteadySeconds() - start};
    const auto all = AllGatherValues<double>(communicator, mine, {.what = "clocks"});
    double first = all[0], last = all[0], error = 1e30;
    for (size_t r = 0; r < all.size(); r += 2) {
      first = std::min(first, all[r]);
      last = std::max(last, all[r]);
      error = std::min(error, all[r + 1]);  // the rank that came last waited least
    }
    if (error < best_error) {
      best_error = error;
      best_skew = last - first;
    }
  }
  return launch::JudgeClocks(best_skew, best_error);
}

Finding CheckBandwidth(Communicator& communicator) {
  const collectives::AllReduceSample sample =
      collectives::BenchAllReduce(communicator, {.sizes = {4 << 20}, .steps = 5}).front();
  const bool has_network = communicator.local_size() < communicator.size();
  const std::string text =
      fmt::format("{:.2f} GB/s when {} ranks sum 4 MB ({})", sample.bus_gb_per_s,
                  communicator.size(), has_network ? "over the network" : "one machine");
  constexpr double kGigabitEthernet = 0.1;  // GB/s
  if (has_network && sample.bus_gb_per_s < 1.5 * kGigabitEthernet)
    return {"bandwidth", Verdict::kWarning, text,
            "this is no more than gigabit Ethernet: choose the fast interface (see network)"};
  return {"bandwidth", Verdict::kOk, text, ""};
}

launch::GpuFacts LookAtGpus(int local_ranks) {
  launch::GpuFacts facts{.driver = launch::ReadGpuDriver(),
                         .built_cuda = BuiltCudaVersion(),
                         .local_ranks = local_ranks};
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = visible;
  if (facts.driver.version.empty() || facts.built_cuda == "no") return facts;
  facts.problem = WhyNoGpu();
  if (facts.problem.empty()) facts.gpus = CountGpus();
  return facts;
}

Finding CheckNccl(const launch::GpuFacts& gpus) {
  try {
    return launch::JudgeNccl(collectives::NcclVersion(), "", gpus);
  } catch (const Error& error) {
    return launch::JudgeNccl("", error.what(), gpus);
  }
}

// What each machine's first rank looks at.
Report LookAtMachine(const DoctorFlags& flags, int local_ranks) {
  const launch::GpuFacts gpus = LookAtGpus(local_ranks);
  Report report{.host = HostName()};
  report.findings = {launch::CheckCores(local_ranks),
                     launch::CheckMemory(local_ranks),
                     launch::CheckSharedMemory(),
                     launch::CheckLimits(),
                     launch::CheckMpi(collectives::MpiVersion()),
                     launch::CheckPmix(),
                     launch::CheckInterfaces(),
                     launch::JudgeGpu(gpus),
                     CheckNccl(gpus)};
  if (flags.dataset.dataset_dir.empty()) {
    report.findings.push_back(
        {"data", Verdict::kSkipped, "no --dataset_dir and --dataset_name were given", ""});
  } else {
    report.findings.push_back(CheckData(flags.dataset, kDataSeconds));
  }
  return report;
}

Finding CheckTrainDir(const std::string& train_dir) {
  if (!train_dir.empty()) return launch::CheckDisk(train_dir);
  return {"disk", Verdict::kSkipped, "no --train_dir was given", ""};
}

void Print(const std::vector<Report>& reports) {
  for (const Report& report : reports) {
    fmt::print("{}\n", report.host);
    for (const Finding& f : report.findings) {
      fmt::print("  {:<8} {:<14} {}\n", VerdictName(f.verdict), f.check, f.text);
      if (!f.fix.empty()) fmt::print("  {:<8} {:<14} fix: {}\n", "", "", f.fix);
    }
  }
}

void PrintJson(const std::vector<Report>& reports, bool good) {
  Json json{{"ok", good}, {"machines", Json::array()}};
  for (const Report& report : reports) {
    Json findings = Json::array();
    for (const Finding& f : report.findings)
      findings.push_back({{"check", f.check},
                          {"verdict", VerdictName(f.verdict)},
                          {"text", f.text},
                          {"fix", f.fix}});
    json["machines"].push_back({{"host", report.host}, {"findings", findings}});
  }
  PrintJsonLine(json);
}

bool HasProblem(const std::vector<Report>& reports) {
  for (const Report& report : reports) {
    if (std::any_of(report.findings.begin(), report.findings.end(),
                    [](const Finding& f) { return f.verdict == Verdict::kProblem; }))
      return true;
  }
  return false;
}

int Finish(const std::vector<Report>& reports, bool json) {
  const bool good = !HasProblem(reports);
  if (json) {
    PrintJson(reports, good);
  } else {
    Print(reports);
    fmt::print("{}\n", good ? "no problem found" : "problem found");
  }
  return good ? 0 : 1;
}

// Ranks that do not find each other are a finding, too.
std::unique_ptr<Job> MakeJob(const MachineFlags& flags, std::vector<Finding>& findings) {
  try {
    auto job = std::make_unique<Job>(flags);
    findings.push_back({"ranks", Verdict::kOk, fmt::format("{} started", job->size()), ""});
    return job;
  } catch (const Error& error) {
    findings.push_back({"ranks", Verdict::kProblem, error.what(), "as the text says"});
    return nullptr;
  }
}

}  // namespace

int Doctor(const Arguments& arguments) {
  DoctorFlags flags;
  CommandLine line("carole doctor",
                   "Looks at machine, MPI, network, data and disk in 10 s; start it as training "
                   "would be. Exit code 1 tells of problem.");
  AddDatasetFlags(line, flags.dataset);
  line.Group("Output");
  line.Add("train_dir,output_dir", flags.train_dir, "folder of checkpoints, to measure its disk");
  line.AddBool("json", flags.json, "print JSON");
  if (!line.Parse(arguments)) return 0;
  flags.machine.trains = true;  // what a training would meet
  flags.machine.collective_timeout = kDeadlineSeconds;

  std::vector<Finding> shared;  // of the job as a whole
  const std::unique_ptr<Job> job = MakeJob(flags.machine, shared);
  if (!job) {
    Report report = LookAtMachine(flags, 1);
    report.findings.insert(report.findings.begin(), shared.begin(), shared.end());
    return Finish({report}, flags.json);
  }
  Communicator& communicator = job->communicator();
  Report mine{.host = HostName()};
  collectives::RunRankLocal(communicator, "machine", [&] {
    if (communicator.local_rank() == 0) mine = LookAtMachine(flags, communicator.local_size());
    if (job->is_chief()) mine.findings.push_back(CheckTrainDir(flags.train_dir));
  });
  if (job->size() > 1) {
    shared.push_back(CheckClocks(communicator));
    shared.push_back(CheckBandwidth(communicator));
  }
  std::vector<Report> reports;
  for (const std::string& text : GatherTexts(communicator, ToText(mine))) {
    reports.push_back(FromText(text));
    if (reports.back().findings.empty()) reports.pop_back();
  }
  reports[0].findings.insert(reports[0].findings.end(), shared.begin(), shared.end());
  if (!job->is_chief()) return 0;
  return Finish(reports, flags.json);
}

}  // namespace carole::commands
