// carole eval: accuracy, loss, per-class accuracy and confusion matrix of a checkpoint over a
// split; once, or of each new checkpoint of a folder.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "collectives/ranks/rank_local_work.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/events/event_writer.h"
#include "io/weights/open_weights.h"
#include "launch/job/job_end.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/cli/recipes.h"
#include "src/commands/setup/evaluation.h"
#include "src/commands/setup/raw_data.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/monitoring/report/confusion_files.h"
#include "src/train/loop/stop_signals.h"
#include "src/train/state/state.h"
#include "src/train/state/warm_start.h"

namespace carole::commands {
namespace {

struct EvalFlags {
  std::string recipe = "train_image_classifier";
  DatasetFlags dataset{.dataset_split_name = "test"};
  NetFlags net;
  MachineFlags machine;
  std::string checkpoint_path = "/tmp/tfmodel/";
  std::string train_dir;
  std::string eval_dir = "/tmp/tfmodel/";
  bool eval_dir_was_given = false;
  std::string confusion_dir;
  double moving_average_decay = 0;
  int64_t batch_size = 100;
  int64_t eval_batch_size = 0;
  int64_t max_num_batches = 0;
  double eval_interval_secs = 0;
  double timeout = 0;
  bool until_trained = false;
  int64_t max_number_of_evaluations = 0;
  bool json = false;
};

void AddEvalFlags(CommandLine& line, EvalFlags& flags) {
  line.Group("Evaluation");
  line.Add(
      "checkpoint_path", flags.checkpoint_path,
      "a file (with or without .h5), a TensorFlow prefix, or a folder for its newest good one");
  line.Add("train_dir,output_dir", flags.train_dir,
           "the same, where --checkpoint_path is not given");
  line.Add("eval_dir,log_dir", flags.eval_dir,
           "folder that an event file is written to; none when empty");
  line.Add("confusion_dir", flags.confusion_dir,
           "folder for the confusion matrix: confusion.csv, .png and .html; none when empty");
  line.AddPositive("batch_size", flags.batch_size, "images at a time, of each rank");
  line.AddNonNegative("eval_batch_size", flags.eval_batch_size,
                      "images at a time, of each machine; 0: see --batch_size");
  line.AddNonNegative("max_num_batches", flags.max_num_batches,
                      "over all ranks together; 0: the whole split");
  line.Add("moving_average_decay", flags.moving_average_decay,
           "not 0: the moving averages of the variables are evaluated");
  line.AddBool("json", flags.json, "print JSON");
  line.Group("Following a run");
  line.AddNonNegative("eval_interval_secs", flags.eval_interval_secs,
                      "not 0: evaluates each new checkpoint of the folder, at most so often");
  line.AddNonNegative("timeout", flags.timeout,
                      "ends after so many seconds without a new one; 0: never");
  line.AddBool("until_trained", flags.until_trained,
               "ends with the checkpoint of training's last step (a minute later, if it was there "
               "before), or when carole launch has noted the job's end in the folder");
  line.AddNonNegative("max_number_of_evaluations", flags.max_number_of_evaluations, "0: any");
}

void AddFlags(CommandLine& line, EvalFlags& flags) {
  AddDatasetFlags(line, flags.dataset);
  AddNetFlags(line, flags.net, "eval_image_size");
  AddEvalFlags(line, flags);
  AddMachineFlags(line, flags.machine);
  AddCollectiveFlags(line, flags.machine);
  AddRecipeFlags(line, flags.recipe);
}

// What is told about the checkpoint that rank 0 read.
struct Evaluated {
  std::string path;
  int64_t step = 0;
};

Evaluated Read(const EvalFlags& flags, const std::string& path, const train::RunMetadata* facts,
               VariableStore& store) {
  const std::unique_ptr<io::WeightsReader> reader = io::OpenWeights(path);
  train::ReadVariables(*reader, KindOfWeights(flags.moving_average_decay), store);
  const Evaluated evaluated{reader->path(), reader->step().value_or(0)};
  if (facts) train::CompareEvaluation(FactsOf(*reader), *facts);
  LogInfo("eval", "{}, step {}{}", evaluated.path, evaluated.step,
          flags.moving_average_decay != 0 ? ", moving averages" : "");
  return evaluated;
}

bool IsWhole(const std::string& checkpoint) {
  try {
    io::ReadCheckpoint(checkpoint);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Only rank 0 needs to see the checkpoint, and all ranks evaluate the same one. Its run's data are
// compared with `facts`, unless null. nullopt, where a run is followed: it has gone since it
// was found, or is damaged.
std::optional<Evaluated> ShareCheckpoint(const EvalFlags& flags, const std::string& path,
                                         const train::RunMetadata* facts, const Job& job,
                                         VariableStore& store) {
  std::optional<Evaluated> evaluated;
  collectives::RunRankLocal(job.communicator(), "checkpoint", [&] {
    if (!job.is_chief()) return;
    try {
      evaluated = Read(flags, path, facts, store);
    } catch (const DataError& error) {
      if (flags.eval_interval_secs == 0 || IsWhole(path)) throw;
      LogWarning("eval", "{}; it is passed over", WithoutTag(error.what()));
    } catch (const Error&) {
      std::error_code error;
      if (flags.eval_interval_secs == 0 || std::filesystem::exists(path, error)) throw;
      LogWarning("eval", "{}: is gone; waiting for the next one", path);
    }
  });
  if (CountRanks(job.communicator(), evaluated.has_value(), {.what = "checkpoint"}) == 0)
    return std::nullopt;
  train::BroadcastVariables(job.communicator(), store);
  return evaluated.value_or(Evaluated{});  // rank 0 alone knows the file
}

void PrintJson(const train::Metrics& metrics, const Evaluated& evaluated,
               const std::vector<std::string>& names) {
  nlohmann::ordered_json json{{"checkpoint", evaluated.path},
                              {"step", evaluated.step},
                              {"samples", metrics.samples()},
                              {"accuracy", metrics.accuracy()},
                              {"recall_5", metrics.recall_5()},
                              {"loss", metrics.loss()},
                              {"classes", nlohmann::ordered_json::array()},
                              {"confusion", nlohmann::ordered_json::array()}};
  for (int64_t label = 0; label < metrics.num_classes(); ++label) {
    json["classes"].push_back({{"name", names[label]},
                               {"samples", metrics.samples_of(label)},
                               {"accuracy", metrics.accuracy_of(label)}});
    std::vector<int64_t> row;
    for (int64_t k = 0; k < metrics.num_classes(); ++k) row.push_back(metrics.confusion(label, k));
    json["confusion"].push_back(row);
  }
  PrintJsonLine(json);
  FlushOutput();
}

// Writes what one evaluation gave, on rank 0.
class Output {
 public:
  Output(const EvalFlags& flags, const NetInput& input, const Job& job)
      : flags_(flags),
        title_(fmt::format("{} on {} {}", input.net->name, input.dataset->name,
                           flags.dataset.dataset_split_name)),
        names_(NamesOfClasses(flags.dataset, input)) {
    if (!job.is_chief() || flags.eval_dir.empty()) return;
    try {
      MakeFolder("eval", flags.eval_dir);
      events_.emplace(flags.eval_dir);
    } catch (const DiskError& error) {  // another user's, most likely
      if (flags.eval_dir_was_given) throw;
      LogWarning("eval",
                 "{}; --eval_dir, not given, names the folder of the event file: none is written",
                 WithoutTag(error.what()));
    }
  }

  void Write(const train::Metrics& metrics, const Evaluated& evaluated) {
    if (flags_.json) {
      PrintJson(metrics, evaluated, names_);
    } else {
      fmt::print("{}", metrics.Report(names_));
      FlushOutput();
    }
    if (!flags_.confusion_dir.empty()) {
      monitoring::WriteConfusion(flags_.confusion_dir,
                                 {.title = title_, .step = evaluated.step, .class_names = names_},
                                 metrics);
    }
    if (!events_) return;
    if (evaluated.step < last_step_) events_.emplace(flags_.eval_dir, evaluated.step);  // run anew
    last_step_ = evaluated.step;
    for (const auto& [tag, value] : metrics.Scalars())
      events_->AddScalar(evaluated.step, tag, static_cast<float>(value));
    events_->Flush();
  }

 private:
  const EvalFlags& flags_;
  const std::string title_;
  const std::vector<std::string> names_;
  std::optional<io::EventWriter> events_;
  int64_t last_step_ = 0;
};

// Whether training ends with this checkpoint, as far as it says so.
bool IsOfLastStep(const io::CheckpointFile& file) {
  try {
    const auto attributes = io::ReadCheckpointHeader(file.path).attributes;
    const auto last = attributes.find(train::kMaxSteps);
    return last != attributes.end() && last->second == std::to_string(file.step);
  } catch (const Error&) {
    return false;  // the evaluation will say what is wrong with it
  }
}

// The checkpoints that appear in a folder, as tf.contrib.training.checkpoints_iterator gives them.
class NewCheckpoints {
 public:
  NewCheckpoints(const EvalFlags& flags, const Job& job)
      : flags_(flags), job_(job), job_end_(flags.checkpoint_path) {
    is_old_ = flags.until_trained && !io::ListCheckpoints(flags.checkpoint_path).empty();
  }

  // The last one cannot be read: older ones count again, newer ones are waited for.
  void PassOver() { passed_over_.insert(std::exchange(found_, before_)); }

  // Waits for the next one; empty when the time is over or a rank was asked to stop. Collective;
  // the path is rank 0's.
  std::optional<std::string> Wait() {
    const Clock::time_point began = Clock::now();
    for (;;) {
      Vote vote = Look(began);
      job_.communicator().Broadcast(std::as_writable_bytes(std::span(&vote, 1)), 0,
                                    {.what = "checkpoint"});
      const int stop = CountRanks(job_.communicator(), train::StopRequested(), {.what = "stop"});
      if (stop > 0 || vote == Vote::kEnd) return std::nullopt;
      if (vote == Vote::kNew) return found_;
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Vote { kNothing, kNew, kEnd };

  // One that was there from the start may be the last of an earlier training.
  static constexpr double kSecondsToGoOn = 60;
  bool IsTrained() const {
    return is_last_ && (!is_old_ || SecondsSince(*evaluated_) > kSecondsToGoOn);
  }

  Vote Look(Clock::time_point began) {
    if (!job_.is_chief()) return Vote::kNothing;
    const bool is_over = flags_.until_trained && (job_end_.Noted() || IsTrained());
    if (!is_over && evaluated_ && SecondsSince(*evaluated_) < flags_.eval_interval_secs)
      return Vote::kNothing;
    auto files = io::ListCheckpoints(flags_.checkpoint_path);
    std::erase_if(files, [&](const auto& file) { return passed_over_.contains(file.path); });
    if (!files.empty() && files.back().path != found_) {
      before_ = std::exchange(found_, files.back().path);
      is_last_ = IsOfLastStep(files.back());
      is_old_ = is_old_ && !evaluated_;
      if (is_last_ && is_old_) {
        LogInfo("eval", "{} is of its run's last step; waiting for {:.0f} s, as that may go on",
                found_, kSecondsToGoOn);
      }
      evaluated_ = Clock::now();
      return Vote::kNew;
    }
    if (is_over) return Vote::kEnd;
    return flags_.timeout > 0 && SecondsSince(began) >= flags_.timeout ? Vote::kEnd
                                                                       : Vote::kNothing;
  }

  const EvalFlags& flags_;
  const Job& job_;
  const launch::JobEnd job_end_;
  std::string found_, before_;  // the one before that
  std::set<std::string> passed_over_;
  bool is_last_ = false;                        // as far as found_ says
  bool is_old_ = false;                         // it was there when this began
  std::optional<Clock::time_point> evaluated_;  // when the last one was begun
};

// 0: all. Of batches as they are given, whatever a rank's share of them.
int64_t MaxSamples(const EvalFlags& flags) {
  const int64_t batch = flags.eval_batch_size > 0 ? flags.eval_batch_size : flags.batch_size;
  const int64_t most = std::numeric_limits<int64_t>::max() / batch;
  return std::min(flags.max_num_batches, most) * batch;
}

void Follow(const EvalFlags& flags, const train::RunMetadata& facts, const Job& job,
            NewCheckpoints& checkpoints, Evaluation& evaluation, Output& output) {
  train::CatchStopSignals();
  LogInfo("eval", "waiting for checkpoints in {}", flags.checkpoint_path);
  int64_t done = 0;
  while (flags.max_number_of_evaluations == 0 || done < flags.max_number_of_evaluations) {
    const auto path = checkpoints.Wait();
    if (!path) break;
    const auto evaluated =  // of one run: what it differs in is told once
        ShareCheckpoint(flags, *path, done == 0 ? &facts : nullptr, job, evaluation.store());
    if (!evaluated) {
      checkpoints.PassOver();
      continue;
    }
    const auto metrics = evaluation.Run(MaxSamples(flags), train::StopRequested);
    if (!metrics) break;
    if (job.is_chief()) output.Write(*metrics, *evaluated);
    ++done;
  }
  LogInfo("eval", "no more checkpoints are waited for");
}

int Run(EvalFlags& flags, const NetInput& input, Job& job) {
  NewCheckpoints checkpoints(flags, job);  // early: what comes while this gets ready is new
  flags.dataset = PrepareRecords(flags.dataset, input, job);
  const int64_t local_batch =
      flags.eval_batch_size > 0 ? ShareOfMachine(flags.eval_batch_size, job) : flags.batch_size;
  Evaluation evaluation(flags.dataset, input, job, local_batch);
  Output output(flags, input, job);
  const train::RunMetadata facts = DataFacts(flags.dataset, input);
  if (flags.eval_interval_secs > 0) {
    Follow(flags, facts, job, checkpoints, evaluation, output);
    return 0;
  }
  const auto evaluated =
      ShareCheckpoint(flags, flags.checkpoint_path, &facts, job, evaluation.store());
  const auto metrics = evaluation.Run(MaxSamples(flags));
  if (job.is_chief()) output.Write(*metrics, *evaluated);
  return 0;
}

}  // namespace

int Eval(const Arguments& arguments) {
  EvalFlags flags;
  CommandLine line("carole eval",
                   "Accuracy, loss and confusion matrix of a checkpoint over a split.");
  AddFlags(line, flags);
  if (!ParseWithRecipe(line, arguments, flags.recipe, &Recipe::eval)) return 0;
  if (line.Given("train_dir") && !line.Given("checkpoint_path"))
    flags.checkpoint_path = flags.train_dir;
  flags.eval_dir_was_given = line.Given("eval_dir");
  // TF-Slim has one folder for all runs; the other programs evaluate beside what they train.
  if (!flags.eval_dir_was_given && flags.recipe != EvalFlags{}.recipe &&
      std::filesystem::is_directory(flags.checkpoint_path))
    flags.eval_dir = flags.checkpoint_path + "/eval";
  if (flags.until_trained && flags.eval_interval_secs == 0) {
    throw UsageError(
        "[flags] --until_trained: got no --eval_interval_secs, so one checkpoint is evaluated at "
        "once; say how often new ones are looked for");
  }
  return RunOnInput(line, flags.dataset, flags.net, flags.machine,
                    [&](Job& job, const NetInput& input) { return Run(flags, input, job); });
}

}  // namespace carole::commands
