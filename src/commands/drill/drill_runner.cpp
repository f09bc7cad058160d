#include "src/commands/drill/drill_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <utility>

#include "io/records/example.h"
#include "io/records/tfrecord.h"
#include "launch/job/mpirun.h"
#include "launch/job/process.h"
#include "src/commands/cli/launch_arguments.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/stopwatch.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

constexpr int kImageSize = 28;
constexpr int kBatch = 4;  // of each rank
constexpr useconds_t kPollMicros = 20'000;
constexpr double kSecondsToEnd = 15;  // from SIGTERM to SIGKILL
constexpr size_t kLogEnd = 6000;      // bytes of a log that are kept

// A training with a fault may take longer than the undisturbed one by what the fault costs: the
// deadline of collectives, at most 60 s, or the pauses of a slow rank, 12 s. It may also run while
// the machine is busier.
constexpr double kFaultSeconds = 120;
constexpr double kBusier = 10;  // times as long as the undisturbed one
// Time limit of the training without a fault, at least. Nothing was measured before it, and ranks
// may take 5 minutes to connect.
constexpr double kUndisturbedSeconds = 1800;

// Waits until the process ends or the seconds are over. Returns whether it has ended. Reads its
// output meanwhile: a full pipe would stop it.
bool WaitFor(launch::Process& process, double seconds) {
  const double end = SteadySeconds() + seconds;
  while (process.IsRunning()) {
    if (SteadySeconds() > end) return false;
    process.Output();
    usleep(kPollMicros);
  }
  return true;
}

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool HasLineWith(const std::string& log, const Arguments& words) {
  return std::ranges::any_of(SplitLines(log), [&](const std::string& line) {
    return std::ranges::all_of(
        words, [&](const std::string& word) { return line.find(word) != std::string::npos; });
  });
}

std::string LastLine(const std::string& log) {
  const std::vector<std::string> lines = SplitLines(log);
  return lines.empty() ? "nothing" : lines.back();
}

std::string DescribeTimeout(double seconds) {
  constexpr double kShort = 10;
  return fmt::format("no end within {:.{}f} s", seconds, seconds < kShort ? 1 : 0);
}

std::string MakeRecords(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::string records;
  for (int i = 0; i < count; ++i) {
    std::string pixels(size_t{kImageSize} * kImageSize, '\0');
    for (char& pixel : pixels) pixel = static_cast<char>(random() & 0xff);
    io::ExampleBuilder example;
    example.Add("image/encoded", pixels);
    example.Add("image/format", "raw");
    example.Add("image/height", int64_t{kImageSize});
    example.Add("image/width", int64_t{kImageSize});
    example.Add("image/class/label", int64_t{i % 10});
    io::AppendRecord(records, example.Finish());
  }
  return records;
}

}  // namespace

std::string DigestOfRun(const std::string& train_dir) {
  try {
    const std::string text =
        launch::RunAndCaptureOutput(SelfCommand("checkpoint", {"inspect", "--json", train_dir}));
    const nlohmann::json json =
        nlohmann::json::parse(text.substr(std::min(text.find('{'), text.size())));
    return json.at("state_digest").get<std::string>();
  } catch (const Error&) {
    return "";
  } catch (const nlohmann::json::exception&) {
    return "";
  }
}

void WriteDrillData(const std::string& folder, int ranks) {
  MakeFolder("drill", folder);
  const fs::path train = fs::path(folder) / "mnist_train.tfrecord";
  const fs::path test = fs::path(folder) / "mnist_test.tfrecord";
  if (!fs::exists(train)) WriteWholeFile(train, MakeRecords(std::max(120, 10 * ranks), 1));
  if (!fs::exists(test)) WriteWholeFile(test, MakeRecords(12 * ranks, 2));
}

DrillRunner::DrillRunner(DrillSetup setup)
    : setup_(std::move(setup)), mpirun_(launch::FindProgram("mpirun", "openmpi-bin")) {}

bool DrillRunner::TrainHasFlag(const std::string& flag) {
  const std::string help = launch::RunAndCaptureOutput(SelfCommand("train", {"--helpfull"}));
  return help.find("--" + flag) != std::string::npos;
}

// Runs one training with all ranks.
DrillRunner::JobEnd DrillRunner::Train(const Training& training) const {
  const int64_t steps = training.steps;
  Arguments train = {"--dataset_name=mnist",
                     "--dataset_dir=" + setup_.work_dir + "/data",
                     "--train_dir=" + training.train_dir,
                     "--model_name=lenet",
                     "--backend=cpu",
                     "--threads=1",
                     "--num_preprocessing_threads=1",
                     fmt::format("--batch_size={}", kBatch),
                     "--optimizer=momentum",
                     "--learning_rate=0.01",
                     "--learning_rate_decay_type=fixed",
                     "--all_reduce=ring",
                     "--bucket_plan=fixed",
                     "--log_every_n_steps=10",
                     "--save_interval_secs=1000",
                     fmt::format("--max_number_of_steps={}", steps),
                     fmt::format("--eval_every={}", EvaluationInterval(steps)),  // saves, too
                     fmt::format("--eval_batch_size={}", setup_.ranks_per_host)};
  train.insert(train.end(), training.flags.begin(), training.flags.end());
  Arguments command = SelfCommand("train", train);
  if (training.injection != nullptr) {
    train.insert(train.begin(), {"--inject=" + ToText(*training.injection), "--", "train"});
    command = SelfCommand("drill", train);
  }
  const double start = SteadySeconds();
  launch::Process process({.argv = launch::MpirunCommand({.mpirun = mpirun_,
                                                          .hostfile = setup_.hostfile,
                                                          .ranks = setup_.ranks,
                                                          .is_root = geteuid() == 0,
                                                          .binding = {.allows_more_ranks = true},
                                                          .command = command}),
                           .pipes = true});
  process.WriteAndCloseInput("");
  JobEnd run{.timed_out = !WaitFor(process, training.limit_seconds),
             .seconds = SteadySeconds() - start};
  if (run.timed_out) {
    process.Signal(SIGTERM);
    if (!WaitFor(process, kSecondsToEnd)) process.Signal(SIGKILL);
    WaitFor(process, kSecondsToEnd);
  }
  run.code = process.exit_code();
  run.log = process.Output();
  return run;
}

const UndisturbedRun& DrillRunner::RunUndisturbed(int64_t steps) {
  if (const auto found = undisturbed_.find(steps); found != undisturbed_.end())
    return found->second;
  const std::string train_dir = fmt::format("{}/undisturbed-{}", setup_.work_dir, steps);
  fs::remove_all(train_dir);
  const JobEnd run = Train({.train_dir = train_dir,
                            .steps = steps,
                            .limit_seconds = std::max(kUndisturbedSeconds, setup_.limit_seconds)});
  const std::string digest = DigestOfRun(train_dir);
  if (run.code != 0 || run.timed_out || digest.empty()) {
    throw ConfigError(fmt::format(
        "[drill] the training without a fault: failed: got {} and the last line {}, want exit code "
        "0; check the machines with carole doctor, or give a longer --case_timeout",
        run.timed_out ? DescribeTimeout(run.seconds) : fmt::format("exit code {}", run.code),
        LastLine(run.log)));
  }
  fs::remove_all(train_dir);
  const bool is_chosen = setup_.limit_seconds > 0;
  return undisturbed_[steps] = {.digest = digest,
                                .seconds = run.seconds,
                                .limit_seconds = is_chosen ? setup_.limit_seconds
                                                           : kFaultSeconds + kBusier * run.seconds};
}

void DrillRunner::CheckFirstRun(const JobEnd& run, DrillResult& result) const {
  const DrillCase& drill = result.drill;
  result.log = run.log.size() > kLogEnd ? run.log.substr(run.log.size() - kLogEnd) : run.log;
  if (run.timed_out) {
    result.seen =
        fmt::format("{}; the last line is: {}", DescribeTimeout(run.seconds), LastLine(run.log));
    result.problems.emplace_back("it did not end in time");
    return;
  }
  result.seen = fmt::format("exit {}", run.code);
  if (std::ranges::find(drill.codes, run.code) == drill.codes.end())
    result.problems.push_back(fmt::format("exit code {}", run.code));
  if (!drill.words.empty()) {
    const bool has_words = HasLineWith(run.log, drill.words);
    result.seen += has_words ? ", message found" : ", no message";
    if (!has_words) {
      std::string words;
      for (const std::string& word : drill.words) words += " \"" + word + "\"";
      result.problems.push_back("no line of the log has" + words);
    }
  }
}

// Runs the training again if it has failed, and compares its weights with the undisturbed ones.
void DrillRunner::CheckEnd(const JobEnd& run, const std::string& train_dir, DrillResult& result) {
  const DrillCase& drill = result.drill;
  if (!drill.has_equal_weights) return;
  const UndisturbedRun& undisturbed = RunUndisturbed(drill.steps);
  if (run.code != 0 || run.timed_out) {
    const JobEnd resumed = Train({.train_dir = train_dir,
                                  .steps = drill.steps,
                                  .limit_seconds = undisturbed.limit_seconds,
                                  .flags = {"--collective_timeout=60"}});
    result.seen +=
        resumed.timed_out ? ", resume did not end" : fmt::format(", resume: exit {}", resumed.code);
    if (resumed.code != 0 || resumed.timed_out) {
      result.problems.push_back("resume failed: " + LastLine(resumed.log));
      return;
    }
  }
  const bool is_equal = DigestOfRun(train_dir) == undisturbed.digest;
  result.seen += is_equal ? ", same weights" : ", other weights";
  if (!is_equal) result.problems.emplace_back("the weights differ from the undisturbed run's");
}

DrillResult DrillRunner::Run(const DrillCase& drill) {
  const double limit_seconds = RunUndisturbed(drill.steps).limit_seconds;
  DrillResult result{.drill = drill};
  const double start = SteadySeconds();
  const Injection& injection = drill.injection;
  const std::string train_dir =
      fmt::format("{}/{}-{}-{}", setup_.work_dir, drill.fault, injection.point, injection.rank);
  fs::remove_all(train_dir);
  const JobEnd run = Train({.train_dir = train_dir,
                            .steps = drill.steps,
                            .limit_seconds = limit_seconds,
                            .flags = drill.flags,
                            .injection = &injection});
  CheckFirstRun(run, result);
  CheckEnd(run, train_dir, result);
  result.seconds = SteadySeconds() - start;
  if (result.problems.empty()) fs::remove_all(train_dir);
  return result;
}

}  // namespace carole::commands
