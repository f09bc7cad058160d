// carole eval: accuracy, per-class accuracy and confusion matrix of one checkpoint over a split.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "collectives/replicas.h"
#include "io/checkpoint_folder.h"
#include "io/event_writer.h"
#include "src/commands/commands.h"
#include "src/commands/inputs.h"
#include "src/commands/job.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/train/evaluate.h"
#include "src/train/state.h"

namespace carole::commands {
namespace {

struct EvalFlags {
  DatasetFlags dataset{.dataset_split_name = "test"};
  NetFlags net;
  MachineFlags machine;
  std::string checkpoint_path = "/tmp/tfmodel/";
  std::string eval_dir;
  int64_t batch_size = 100;
  int64_t max_num_batches = 0;
  bool json = false;
};

void AddFlags(CommandLine& line, EvalFlags& flags) {
  AddDatasetFlags(line, flags.dataset);
  AddNetFlags(line, flags.net, "eval_image_size");
  line.Group("Evaluation");
  line.Add("checkpoint_path,train_dir,output_dir", flags.checkpoint_path,
           "a file, or a folder for its newest good one");
  line.Add("eval_dir", flags.eval_dir, "folder that an event file is written to; none when empty");
  line.Add("batch_size", flags.batch_size, "images at a time, of each rank")
      ->check(CLI::PositiveNumber);
  line.Add("max_num_batches", flags.max_num_batches, "0: the whole split")
      ->check(CLI::NonNegativeNumber);
  line.AddBool("json", flags.json, "print JSON");
  AddMachineFlags(line, flags.machine);
  AddCollectiveFlags(line, flags.machine);
  AddIgnoredFlags(line);
  line.Group("Of the original, not in this version");
  line.AddUnsupported("moving_average_decay");
  for (const char* name : {"quantize", "use_grayscale"}) line.AddUnsupported(name, true);
}

// The first batches of another source.
class FirstBatches : public io::BatchSource {
 public:
  FirstBatches(std::unique_ptr<io::BatchSource> source, int64_t count)
      : source_(std::move(source)), left_(count) {}
  const io::Batch* Next() override { return left_-- > 0 ? source_->Next() : nullptr; }
  int64_t num_samples() const override { return source_->num_samples(); }

 private:
  std::unique_ptr<io::BatchSource> source_;
  int64_t left_;
};

io::LoadedCheckpoint Load(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path, io::ReadCheckpoint(path)};
  if (auto newest = io::ReadLatest(path)) return std::move(*newest);
  throw DataError(fmt::format(
      "[eval] {}: holds no checkpoint; name a file or folder with --checkpoint_path", path));
}

// What is told about the checkpoint that rank 0 read.
struct Evaluated {
  std::string path;
  int64_t step = 0;
};

// Only rank 0 needs to see the checkpoint, and all ranks evaluate the same one.
Evaluated ShareCheckpoint(const std::string& path, const Job& job, VariableStore& store) {
  Evaluated evaluated;
  if (job.is_chief()) {
    const io::LoadedCheckpoint loaded = Load(path);
    train::RestoreVariables(loaded.checkpoint, loaded.path, store);
    evaluated = {loaded.path, loaded.checkpoint.step};
    LogInfo("eval", "{}, step {}", evaluated.path, evaluated.step);
  }
  collectives::BroadcastAndVerify(job.communicator(), store.weights<float>());
  if (!store.statistics<float>().empty())
    collectives::BroadcastAndVerify(job.communicator(), store.statistics<float>(), "statistics");
  return evaluated;
}

std::vector<std::string> NamesOf(const EvalFlags& flags, const NetInput& input) {
  std::vector<std::string> names = io::ClassNames(*input.dataset, flags.dataset.dataset_dir);
  names.erase(names.begin(),
              names.begin() + std::min<int64_t>(flags.dataset.labels_offset, names.size()));
  return names;
}

void PrintJson(const train::Metrics& metrics, const Evaluated& evaluated,
               const std::vector<std::string>& names) {
  nlohmann::ordered_json json{{"checkpoint", evaluated.path},
                              {"step", evaluated.step},
                              {"samples", metrics.samples()},
                              {"accuracy", metrics.accuracy()},
                              {"recall_5", metrics.recall_5()},
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
  fmt::print("{}\n", json.dump());
}

void WriteEvents(const std::string& folder, const train::Metrics& metrics, int64_t step) {
  std::filesystem::create_directories(folder);
  io::EventWriter events(folder);
  events.AddScalar(step, "eval/Accuracy", static_cast<float>(metrics.accuracy()));
  events.AddScalar(step, "eval/Recall_5", static_cast<float>(metrics.recall_5()));
  events.Flush();
}

int Run(const EvalFlags& flags, const NetInput& input, Job& job) {
  std::unique_ptr<io::BatchSource> source =
      io::MakePipeline(MakePipelineOptions(flags.dataset, input, job, flags.batch_size));
  if (flags.max_num_batches > 0)
    source = std::make_unique<FirstBatches>(std::move(source), flags.max_num_batches);
  nets::Model model = nets::BuildModel(*input.net, MakeModelOptions(input, flags.batch_size));
  train::Evaluator evaluator(std::move(model.graph), model.logits, job.backend());
  const Evaluated evaluated = ShareCheckpoint(flags.checkpoint_path, job, evaluator.store());
  const train::Metrics metrics = evaluator.Run(*source, job.communicator());
  if (!job.is_chief()) return 0;
  const std::vector<std::string> names = NamesOf(flags, input);
  if (flags.json) {
    PrintJson(metrics, evaluated, names);
  } else {
    fmt::print("{}", metrics.Report(names));
  }
  if (!flags.eval_dir.empty()) WriteEvents(flags.eval_dir, metrics, evaluated.step);
  return 0;
}

}  // namespace

int Eval(const Arguments& arguments) {
  EvalFlags flags;
  CommandLine line("carole eval", "Accuracy and confusion matrix of a checkpoint over a split.");
  AddFlags(line, flags);
  return ParseAndRun(line, arguments, flags.dataset, flags.net, flags.machine,
                     [&](Job& job, const NetInput& input) { return Run(flags, input, job); });
}

}  // namespace carole::commands
