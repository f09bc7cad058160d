// carole doctor: checks machine, MPI, network, data and disk, alone or as ranks of a job. Each
// finding comes with its fix.
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
#include "src/commands/cli/flag_names.h"
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
using launch::FindingStatus;
using Json = nlohmann::ordered_json;

constexpr double kDeadlineSeconds = 5;  // how long it waits for other ranks
constexpr double kDataSeconds = 3;      // how long it reads shards

struct DoctorFlags {
  DataConfig dataset = MakeDataConfig("", "train");
  std::string train_dir;
  MachineConfig machine;
  bool json = false;
};

// The findings of one host. ToText() and FromText() convert it for sending between ranks.
struct Report {
  std::string host;
  std::vector<Finding> findings;
};

std::string ToText(const Report& report) {
  Json json{{"host", report.host}, {"findings", Json::array()}};
  for (const Finding& f : report.findings)
    json["findings"].push_back({f.check, static_cast<int>(f.status), f.text, f.fix});
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Report FromText(const std::string& text) {
  const Json json = Json::parse(text);
  Report report{.host = json.at("host")};
  for (const Json& f : json.at("findings"))
    report.findings.push_back({f[0], static_cast<FindingStatus>(f[1].get<int>()), f[2], f[3]});
  return report;
}

// Returns the texts of all ranks. Collective.
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

double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Compares the wall clocks of all ranks. They leave a barrier at nearly the same moment and then
// read their clocks. The error of the comparison is at most the shortest time that a rank spent in
// the barrier.
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
      error = std::min(error, all[r + 1]);  // the rank that arrived last waited least
    }
    if (error < best_error) {
      best_error = error;
      best_skew = last - first;
    }
  }
  return launch::JudgeClocks(best_skew, best_error);
}

Finding CheckBandwidth(collectives::FullCommunicator& communicator) {
  const collectives::AllReduceSample sample =
      collectives::BenchAllReduce(communicator, {.sizes = {4 << 20}, .steps = 5}).front();
  const bool has_network = communicator.local_size() < communicator.size();
  const std::string text =
      fmt::format("{:.2f} GB/s in an all-reduce of 4 MB over {} ranks ({})", sample.bus_gb_per_s,
                  communicator.size(), has_network ? "over the network" : "on one host");
  constexpr double kGigabitEthernet = 0.1;  // GB/s
  if (has_network && sample.bus_gb_per_s < 1.5 * kGigabitEthernet)
    return {"bandwidth", FindingStatus::kWarning, text,
            "this is the speed of gigabit Ethernet: choose the fast interface (see network)"};
  return {"bandwidth", FindingStatus::kOk, text, ""};
}

launch::GpuFacts LookAtGpus(int local_ranks) {
  launch::GpuFacts facts{.driver = launch::ReadGpuDriver(),
                         .built_cuda = BuiltCudaVersion(),
                         .local_ranks = local_ranks};
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = visible;
  if (facts.driver.version.empty() || facts.built_cuda == "no") return facts;
  facts.problem = GpuUnavailableReason();
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

// Runs the checks of one host. Called by the first rank of each host.
Report CheckMachine(const DoctorFlags& flags, int local_ranks) {
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
                     CheckNccl(gpus),
                     launch::CheckGpuMemory(gpus.gpus > 0 ? local_ranks : 0)};
  if (flags.dataset.pipeline.dataset_dir.empty()) {
    report.findings.push_back(
        {"data", FindingStatus::kSkipped, "--dataset_dir and --dataset_name were not given", ""});
  } else {
    report.findings.push_back(CheckData(flags.dataset, kDataSeconds));
  }
  return report;
}

Finding CheckTrainDir(const std::string& train_dir) {
  if (!train_dir.empty()) return launch::CheckDisk(train_dir);
  return {"disk", FindingStatus::kSkipped, "--train_dir was not given", ""};
}

void Print(const std::vector<Report>& reports) {
  for (const Report& report : reports) {
    fmt::print("{}\n", report.host);
    for (const Finding& f : report.findings) {
      fmt::print("  {:<8} {:<14} {}\n", FindingStatusName(f.status), f.check, f.text);
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
                          {"verdict", FindingStatusName(f.status)},
                          {"text", f.text},
                          {"fix", f.fix}});
    json["machines"].push_back({{"host", report.host}, {"findings", findings}});
  }
  PrintJsonLine(json);
}

bool HasProblem(const std::vector<Report>& reports) {
  for (const Report& report : reports) {
    if (std::any_of(report.findings.begin(), report.findings.end(),
                    [](const Finding& f) { return f.status == FindingStatus::kProblem; }))
      return true;
  }
  return false;
}

// Prints the findings. Texts of libraries name options; here they become flags.
int Finish(std::vector<Report> reports, bool json) {
  for (Report& report : reports) {
    for (Finding& finding : report.findings) {
      finding.text = WithFlags(finding.text);
      finding.fix = WithFlags(finding.fix);
    }
  }
  const bool good = !HasProblem(reports);
  if (json) {
    PrintJson(reports, good);
  } else {
    Print(reports);
    fmt::print("{}\n", good ? "no problem found" : "problem found");
  }
  return good ? 0 : 1;
}

// Returns the context of this rank. If the ranks cannot connect, adds that as a finding and returns
// nullptr.
std::unique_ptr<RankContext> TryMakeRankContext(const MachineConfig& flags,
                                                std::vector<Finding>& findings) {
  try {
    auto context = std::make_unique<RankContext>(flags);
    context->StartBackend(flags);
    findings.push_back(
        {"ranks", FindingStatus::kOk, fmt::format("{} started", context->size()), ""});
    return context;
  } catch (const Error& error) {
    findings.push_back({"ranks", FindingStatus::kProblem, error.what(), "do what the text says"});
    return nullptr;
  }
}

}  // namespace

int Doctor(const Arguments& arguments) {
  DoctorFlags flags;
  CommandLine line("carole doctor",
                   "Checks machine, MPI, GPU, network, data and disk in about 10 seconds. Start it "
                   "in the same way as the training. The exit code is 1 if something is wrong.",
                   {"carole doctor",
                    "mpirun -np 4 carole doctor --dataset_name=imagenet --dataset_dir=DATA "
                    "--train_dir=RUN"});
  AddDatasetFlags(line, flags.dataset, DatasetDir::kOptional);
  line.Group("Disk and output");
  line.AddPath("train_dir,output_dir", flags.train_dir,
               "Folder of checkpoints, whose disk is measured; empty: no disk is measured.",
               HelpLevel::kBasic);
  line.Add("json", flags.json, "Print JSON.", HelpLevel::kBasic);
  if (!line.Parse(arguments)) return 0;
  flags.machine.is_training = true;  // checks what a training would check
  flags.machine.communicator.deadline_seconds = kDeadlineSeconds;

  std::vector<Finding> shared;  // findings about the job as a whole
  const std::unique_ptr<RankContext> context = TryMakeRankContext(flags.machine, shared);
  if (!context) {
    Report report = CheckMachine(flags, 1);
    report.findings.insert(report.findings.begin(), shared.begin(), shared.end());
    return Finish({report}, flags.json);
  }
  collectives::FullCommunicator& communicator = context->communicator();
  Report mine{.host = HostName()};
  collectives::RunRankLocal(communicator, "machine", [&] {
    if (communicator.local_rank() == 0) mine = CheckMachine(flags, communicator.local_size());
    if (context->is_chief()) mine.findings.push_back(CheckTrainDir(flags.train_dir));
  });
  if (context->size() > 1) {
    shared.push_back(CheckClocks(communicator));
    shared.push_back(CheckBandwidth(communicator));
  }
  std::vector<Report> reports;
  for (const std::string& text : GatherTexts(communicator, ToText(mine))) {
    reports.push_back(FromText(text));
    if (reports.back().findings.empty()) reports.pop_back();
  }
  reports[0].findings.insert(reports[0].findings.end(), shared.begin(), shared.end());
  if (!context->is_chief()) return 0;
  return Finish(reports, flags.json);
}

}  // namespace carole::commands
