// carole eval: measures accuracy, loss, per-class accuracy and the confusion matrix of a checkpoint
// on a split, once, or for each new checkpoint of a folder.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>
#include <type_traits>

#include "collectives/ranks/rank_local_work.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/events/event_writer.h"
#include "io/tensorflow/tf_checkpoint.h"
#include "io/weights/checkpoint_follower.h"
#include "io/weights/open_weights.h"
#include "launch/job/end_markers.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/commands/cli/recipes.h"
#include "src/commands/flags/flag_check.h"
#include "src/commands/setup/evaluation.h"
#include "src/commands/setup/raw_data.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/core/text/quote_for_shell.h"
#include "src/monitoring/report/confusion_files.h"
#include "src/train/loop/stop_signals.h"
#include "src/train/state/state.h"
#include "src/train/state/warm_start.h"

namespace carole::commands {
namespace {

struct EvalFlags {
  std::string recipe = "train_image_classifier";
  DataConfig data = MakeDataConfig("imagenet", "test");
  NetConfig net;
  MachineConfig machine;
  CheckpointConfig checkpoint;
  std::string eval_dir = "/tmp/tfmodel/";
  bool eval_dir_was_given = false;
  std::string confusion_dir;
  bool quantize = false;
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
  line.AddPath("eval_dir,log_dir", flags.eval_dir,
               "Folder in which an event file is written; empty: none is written.",
               HelpLevel::kBasic);
  line.AddPath("confusion_dir", flags.confusion_dir,
               "Folder for the confusion matrix as confusion.csv, .png and .html; empty: none.",
               HelpLevel::kBasic);
  line.Add("quantize", flags.quantize,
           "Round weights and activations to 8-bit integers, with the ranges of a run with "
           "--quantize_delay.");
  line.AddPositive("batch_size", flags.batch_size, "Images that each rank evaluates at a time.",
                   HelpLevel::kBasic);
  line.AddNonNegative("eval_batch_size", flags.eval_batch_size,
                      "Images that each host evaluates at a time; 0: see --batch_size.");
  line.AddNonNegative("max_num_batches", flags.max_num_batches,
                      "Batches that are evaluated over all ranks together; 0: the whole split.",
                      HelpLevel::kBasic);
  line.Add("json", flags.json, "Print JSON.", HelpLevel::kBasic);
  line.Group("Following a run");
  line.AddNonNegative("eval_interval_secs", flags.eval_interval_secs,
                      "Evaluate each new checkpoint of the folder, with at least this many seconds "
                      "between two evaluations; 0: evaluate once.",
                      HelpLevel::kBasic);
  line.AddNonNegative("timeout", flags.timeout,
                      "Seconds without a new checkpoint after which the program ends; 0: no limit.",
                      HelpLevel::kBasic);
  line.Add("until_trained", flags.until_trained,
           "End after the checkpoint of training's last step (a minute later if it existed at "
           "the start), or when `carole launch` notes the end of the job in the folder.");
  line.AddNonNegative("max_number_of_evaluations", flags.max_number_of_evaluations,
                      "Number of evaluations after which the program ends; 0: no limit.");
}

void AddFlags(CommandLine& line, EvalFlags& flags) {
  AddDatasetFlags(line, flags.data);
  AddNetFlags(line, flags.net, "eval_image_size");
  AddCheckpointFlags(line, flags.checkpoint);
  AddEvalFlags(line, flags);
  AddMachineFlags(line, flags.machine);
  AddCollectiveFlags(line, flags.machine);
  AddRecipeFlags(line, flags.recipe);
}

// Returns the metadata of the run that is evaluated. Only rank 0 reads the checkpoint. Empty for
// files of other programs, and if a run is followed that has no intact checkpoint yet. Collective.
train::RunMetadata ShareRunMetadata(const EvalFlags& flags, const RankContext& context) {
  std::string text;  // names and values, with a zero byte after each
  collectives::RunRankLocal(context.communicator(), "checkpoint", [&] {
    if (!context.is_chief()) return;
    try {
      for (const auto& [name, value] : ReadRunMetadata(*io::OpenWeights(flags.checkpoint.path)))
        text.append(name).append(1, '\0').append(value).append(1, '\0');
    } catch (const Error&) {
      if (flags.eval_interval_secs == 0) throw;
    }
  });
  size_t bytes = text.size();
  context.communicator().Broadcast(std::as_writable_bytes(std::span(&bytes, 1)), 0,
                                   {.what = "metadata"});
  text.resize(bytes);
  context.communicator().Broadcast(std::as_writable_bytes(std::span(text)), 0,
                                   {.what = "metadata"});
  train::RunMetadata metadata;
  std::istringstream words(text);
  for (std::string name, value; std::getline(words, name, '\0');) {
    std::getline(words, value, '\0');
    metadata[name] = value;
  }
  return metadata;
}

// Returns the split that is evaluated if none was given: TF-Slim's default, if the data set has it.
std::string ChooseSplit(const EvalFlags& flags, const train::RunMetadata& metadata) {
  const std::string& by_default = flags.data.pipeline.split;
  const std::filesystem::path folder = flags.data.pipeline.dataset_dir;
  const io::DatasetEntry& dataset = io::FindDataset(flags.data.dataset_name);
  for (const io::SplitEntry& split : dataset.splits) {
    if (split.name == by_default && HasRecords(split, folder)) return by_default;
  }
  const auto trained = metadata.find(train::kSplit);
  return DefaultEvaluationSplit(dataset, folder,
                                trained == metadata.end() ? "train" : trained->second);
}

// Takes what was not given from the checkpoint, so that images and labels mean what they did in
// training.
void FillFromCheckpoint(const CommandLine& line, const train::RunMetadata& metadata,
                        EvalFlags& flags) {
  const auto take = [&](const char* flag, const char* attribute, auto& value) {
    if (line.IsGiven(flag) || !metadata.contains(attribute)) return;
    value = std::remove_cvref_t<decltype(value)>();
    train::FillFromMetadata(metadata, attribute, value);
  };
  DataConfig& data = flags.data;
  take("model_name", train::kNet, flags.net.model_name);
  take("eval_image_size", train::kImageSize, flags.net.model.image_size);
  take("dataset_name", train::kDataset, data.dataset_name);
  take("preprocessing_name", train::kPreprocessing, data.preprocessing_name);
  take("labels_offset", train::kLabelsOffset, data.pipeline.labels_offset);
  const auto channels = metadata.find(train::kChannels);
  if (!line.IsGiven("use_grayscale") && channels != metadata.end() && channels->second == "1")
    data.use_grayscale = io::FindDataset(data.dataset_name).channels != 1;
  if (!line.IsGiven("dataset_split_name")) data.pipeline.split = ChooseSplit(flags, metadata);
}

void LogPlan(const EvalFlags& flags, const NetInput& input, const train::RunMetadata& metadata) {
  const io::PipelineOptions& data = flags.data.pipeline;
  LogInfo("eval", "{}: images {}x{}x{}, {} classes, preprocessing {}; {} {} in {}", input.net->name,
          input.image_size, input.image_size, input.channels, input.num_classes,
          input.preprocessing, input.dataset->name, data.split, data.dataset_dir);
  const auto trained = metadata.find(train::kSplit);
  if (trained != metadata.end() && trained->second == data.split)
    LogInfo("eval", "the net was trained on these images, so new ones will do worse");
}

// The checkpoint that rank 0 read.
struct EvaluatedCheckpoint {
  std::string path;
  int64_t step = 0;
};

EvaluatedCheckpoint Read(const EvalFlags& flags, const std::string& path,
                         const train::RunMetadata* metadata, VariableStore& store) {
  const std::unique_ptr<io::WeightsSource> reader = io::OpenWeights(path);
  if (metadata)
    train::RequireSameClasses(train::MetadataReader::kEvaluation, ReadRunMetadata(*reader),
                              *metadata, reader->path());
  train::ReadVariables(*reader, ChooseWeightsKind(flags.checkpoint.moving_average_decay), store);
  const EvaluatedCheckpoint evaluated{reader->path(), reader->step().value_or(0)};
  if (metadata) train::CompareEvaluationMetadata(ReadRunMetadata(*reader), *metadata);
  LogInfo("eval", "{}, step {}{}", evaluated.path, evaluated.step,
          flags.checkpoint.moving_average_decay != 0 ? ", moving averages" : "");
  return evaluated;
}

bool IsWhole(const std::string& checkpoint) {
  try {
    const auto reader = io::OpenWeights(checkpoint);
    std::vector<float> values;
    for (const std::string& name : reader->names()) {
      values.resize(static_cast<size_t>(reader->shape(name).size()));
      reader->Read(name, values);
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whether the file, or a file of a TensorFlow checkpoint, is still there.
bool Exists(const std::string& checkpoint) {
  std::error_code error;
  return std::filesystem::exists(checkpoint, error) || io::FindTfCheckpoint(checkpoint);
}

// Reads the checkpoint on rank 0 and broadcasts its variables, so that only rank 0 needs to see the
// file. Compares the data of its run with `metadata`, unless that is null. Returns nullopt if a run
// is followed and the checkpoint is damaged or was deleted since it was found. Collective.
std::optional<EvaluatedCheckpoint> ShareCheckpoint(const EvalFlags& flags, const std::string& path,
                                                   const train::RunMetadata* metadata,
                                                   const RankContext& context,
                                                   VariableStore& store) {
  std::optional<EvaluatedCheckpoint> evaluated;
  collectives::RunRankLocal(context.communicator(), "checkpoint", [&] {
    if (!context.is_chief()) return;
    try {
      evaluated = Read(flags, path, metadata, store);
    } catch (const DataError& error) {
      if (flags.eval_interval_secs == 0 || IsWhole(path)) throw;
      LogWarning("eval", "{}; skipping this checkpoint", WithoutTag(error.what()));
    } catch (const Error&) {
      if (flags.eval_interval_secs == 0 || Exists(path)) throw;
      LogWarning("eval", "{}: was deleted; waiting for the next checkpoint", path);
    }
  });
  if (CountRanks(context.communicator(), evaluated.has_value(), {.what = "checkpoint"}) == 0)
    return std::nullopt;
  train::BroadcastVariables(context.communicator(), store);
  return evaluated.value_or(EvaluatedCheckpoint{});  // rank 0 alone knows the file
}

void PrintJson(const train::Metrics& metrics, const EvaluatedCheckpoint& evaluated,
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
  FlushStdout();
}

// Writes the results of evaluations, on rank 0.
class Output {
 public:
  Output(const EvalFlags& flags, const NetInput& input, const RankContext& context)
      : flags_(flags),
        title_(fmt::format("{} on {} {}", input.net->name, input.dataset->name,
                           flags.data.pipeline.split)),
        names_(NetClassNames(flags.data, input)) {
    if (!context.is_chief() || flags.eval_dir.empty()) return;
    try {
      MakeFolder("eval", flags.eval_dir);
      events_.emplace(flags.eval_dir);
      LogInfo("eval", "the results are also written into an event file in {}{}", flags.eval_dir,
              flags.eval_dir_was_given ? "" : "; --eval_dir names another folder, or none");
    } catch (const DiskError& error) {  // the default folder probably belongs to another user
      if (flags.eval_dir_was_given) throw;
      LogWarning("eval", "{}; no event file is written; name its folder with --eval_dir",
                 WithoutTag(error.what()));
    }
  }

  void Write(const train::Metrics& metrics, const EvaluatedCheckpoint& evaluated) {
    if (flags_.json) {
      PrintJson(metrics, evaluated, names_);
    } else {
      fmt::print("{}", metrics.Report(names_));
      FlushStdout();
    }
    if (!flags_.confusion_dir.empty()) {
      monitoring::WriteConfusion(flags_.confusion_dir,
                                 {.title = title_, .step = evaluated.step, .class_names = names_},
                                 metrics);
    }
    if (!events_) return;
    // A step that decreases means that the run was started again.
    if (evaluated.step < last_step_) events_.emplace(flags_.eval_dir, evaluated.step);
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

// Whether the checkpoint says that it is from the last step of its training.
bool IsFromLastStep(const io::CheckpointFile& file) {
  try {
    const auto attributes = io::ReadCheckpointHeader(file.path).attributes;
    const auto last = attributes.find(train::kMaxSteps);
    return last != attributes.end() && last->second == std::to_string(file.step);
  } catch (const Error&) {
    return false;  // the evaluation will report what is wrong with it
  }
}

// Lets all ranks wait for the next checkpoint of the folder that is followed. Rank 0 looks at the
// folder and tells the others.
class CheckpointWaiter {
 public:
  CheckpointWaiter(const EvalFlags& flags, const RankContext& context)
      : flags_(flags),
        context_(context),
        job_end_(flags.checkpoint.path),
        follower_(flags.checkpoint.path) {
    existed_at_start_ = flags.until_trained && !io::ListCheckpoints(flags.checkpoint.path).empty();
  }

  // Excludes the checkpoint that Wait() returned last, because it cannot be read.
  void SkipLast() { follower_.SkipLast(); }

  // Waits for the next checkpoint. Returns its path on rank 0 and "" on other ranks; nullopt if
  // nothing more is to be evaluated or a rank was asked to stop. Collective.
  std::optional<std::string> Wait() {
    const Clock::time_point began = Clock::now();
    for (;;) {
      Vote vote = Look(began);
      context_.communicator().Broadcast(std::as_writable_bytes(std::span(&vote, 1)), 0,
                                        {.what = "checkpoint"});
      const int stop =
          CountRanks(context_.communicator(), train::StopRequested(), {.what = "stop"});
      if (stop > 0 || vote == Vote::kEnd) return std::nullopt;
      if (vote == Vote::kNew) return path_;
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Vote { kNothing, kNew, kEnd };

  // A checkpoint of a last step that existed at the start may be from an earlier training, which
  // the current one continues. So the program waits for a while before it believes it.
  static constexpr double kSecondsToContinue = 60;
  bool IsTrained() const {
    return is_from_last_step_ &&
           (!existed_at_start_ || SecondsSince(*last_start_) > kSecondsToContinue);
  }

  Vote Look(Clock::time_point began) {
    if (!context_.is_chief()) return Vote::kNothing;
    const bool is_over = flags_.until_trained && (job_end_.HasEnded() || IsTrained());
    if (!is_over && last_start_ && SecondsSince(*last_start_) < flags_.eval_interval_secs)
      return Vote::kNothing;
    if (const auto file = follower_.FindNew()) {
      path_ = file->path;
      is_from_last_step_ = IsFromLastStep(*file);
      existed_at_start_ = existed_at_start_ && !last_start_;
      if (is_from_last_step_ && existed_at_start_) {
        LogInfo("eval",
                "{}: is from the last step of its run; waiting {:.0f} s in case the run continues",
                path_, kSecondsToContinue);
      }
      last_start_ = Clock::now();
      return Vote::kNew;
    }
    if (is_over) return Vote::kEnd;
    return flags_.timeout > 0 && SecondsSince(began) >= flags_.timeout ? Vote::kEnd
                                                                       : Vote::kNothing;
  }

  const EvalFlags& flags_;
  const RankContext& context_;
  const launch::JobEndDetector job_end_;
  io::CheckpointFollower follower_;
  std::string path_;                             // of the last checkpoint found; rank 0 only
  bool is_from_last_step_ = false;               // whether that says it is from the last step
  bool existed_at_start_ = false;                // whether that existed when this began
  std::optional<Clock::time_point> last_start_;  // when its evaluation was started
};

// Returns the number of samples that --max_num_batches allows; 0: all. It counts batches of the
// size that was given, not of a rank's share of them.
int64_t MaxSamples(const EvalFlags& flags) {
  const int64_t batch = flags.eval_batch_size > 0 ? flags.eval_batch_size : flags.batch_size;
  const int64_t most = std::numeric_limits<int64_t>::max() / batch;
  return std::min(flags.max_num_batches, most) * batch;
}

void Follow(const EvalFlags& flags, const train::RunMetadata& metadata, const RankContext& context,
            CheckpointWaiter& checkpoints, Evaluation& evaluation, Output& output) {
  train::CatchStopSignals();
  LogInfo("eval", "waiting for checkpoints in {}", flags.checkpoint.path);
  if (const std::string unnamed = io::DescribeUnnamedCheckpoint(flags.checkpoint.path);
      context.is_chief() && !unnamed.empty())
    LogWarning("eval", "not evaluated: {}", unnamed);
  int64_t done = 0;
  while (flags.max_number_of_evaluations == 0 || done < flags.max_number_of_evaluations) {
    const auto path = checkpoints.Wait();
    if (!path) break;
    const auto evaluated =  // all are of one run: differences are reported once
        ShareCheckpoint(flags, *path, done == 0 ? &metadata : nullptr, context, evaluation.store());
    if (!evaluated) {
      checkpoints.SkipLast();
      continue;
    }
    const auto metrics = evaluation.Run(MaxSamples(flags), train::StopRequested);
    if (!metrics) break;
    if (context.is_chief()) output.Write(*metrics, *evaluated);
    ++done;
  }
  if (done == 0 && context.is_chief())
    LogWarning("eval", "{}: no checkpoint was evaluated", flags.checkpoint.path);
  LogInfo("eval", "done; not waiting for more checkpoints");
}

int Run(EvalFlags& flags, const NetInput& input, const train::RunMetadata& run,
        RankContext& context) {
  LogPlan(flags, input, run);
  // Made first, so that checkpoints that are written during the preparation count as new.
  CheckpointWaiter checkpoints(flags, context);
  flags.data = PrepareRecords(flags.data, input, context);
  const int64_t local_batch = flags.eval_batch_size > 0
                                  ? DivideHostBatch(flags.eval_batch_size, context)
                                  : flags.batch_size;
  Evaluation evaluation(flags.data, input, context, local_batch);
  Output output(flags, input, context);
  const train::RunMetadata metadata = MakeDataMetadata(flags.data, input);
  if (flags.eval_interval_secs > 0) {
    Follow(flags, metadata, context, checkpoints, evaluation, output);
    return 0;
  }
  const auto evaluated =
      ShareCheckpoint(flags, flags.checkpoint.path, &metadata, context, evaluation.store());
  const auto metrics = evaluation.Run(MaxSamples(flags));
  if (!context.is_chief()) return 0;
  output.Write(*metrics, *evaluated);
  WarnOfYoungStatistics("eval", run, evaluation.statistics_decay(), evaluated->step);
  LogInfo("eval", "next: carole predict --checkpoint_path={} IMAGE",
          QuoteForShell(flags.checkpoint.path));
  return 0;
}

}  // namespace

int Eval(const Arguments& arguments) {
  EvalFlags flags;
  CommandLine line(
      "carole eval",
      "Measures accuracy, loss and confusion matrix of a checkpoint on a split, once or for each "
      "new checkpoint of a run. Net, data set, preprocessing and image size that are not given are "
      "those of the checkpoint, and the split is one that it was not trained on.",
      {"carole eval --dataset_dir=DATA --checkpoint_path=RUN",
       "carole eval --config=eval.toml --checkpoint_path=RUN --eval_interval_secs=60 "
       "--timeout=3600"});
  AddFlags(line, flags);
  if (!ParseWithRecipe(line, arguments, flags.recipe, &Recipe::eval)) return 0;
  ResolveCheckpoint(line, flags.checkpoint);
  if (flags.quantize) flags.net.model.quantization = nets::QuantizationOptions();
  RequireFp32IfQuantized(flags.net.model, flags.machine.precision);
  flags.eval_dir_was_given = line.IsGiven("eval_dir");
  // TF-Slim has one default folder for all runs. The other programs write next to the checkpoints.
  if (!flags.eval_dir_was_given && flags.recipe != EvalFlags{}.recipe &&
      std::filesystem::is_directory(flags.checkpoint.path))
    flags.eval_dir = flags.checkpoint.path + "/eval";
  if (flags.until_trained && flags.eval_interval_secs == 0) {
    throw UsageError(
        "[flags] --until_trained: needs --eval_interval_secs: without it one checkpoint is "
        "evaluated at once");
  }
  if (flags.eval_interval_secs > 0 && !io::CanBeFollowed(flags.checkpoint.path)) {
    throw UsageError(
        fmt::format("[flags] --eval_interval_secs: got one checkpoint, {}, want the folder of a "
                    "run; name the folder, or leave --eval_interval_secs out",
                    flags.checkpoint.path));
  }
  RequireDatasetDir(flags.data);
  return RunAsRank(flags.machine, [&](RankContext& context) {
    CheckFlagsMatch(line, context.communicator());
    line.LogIgnored();
    const train::RunMetadata run = ShareRunMetadata(flags, context);
    FillFromCheckpoint(line, run, flags);
    return Run(flags, ResolveNetInput(flags.net, flags.data), run, context);
  });
}

}  // namespace carole::commands
