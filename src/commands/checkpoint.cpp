// carole checkpoint inspect, carole checkpoint verify.
#include "io/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "io/checkpoint/checkpoint_folder.h"
#include "io/checkpoint/hdf5.h"
#include "io/weights/open_weights.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/train/loop/epoch_history.h"

namespace carole::commands {
namespace {

struct Tensor {
  std::string name;
  std::string type;  // and shape
  int64_t num_values;
};

// Prints the lines, or only the first and the last ones if there are many.
void PrintEnds(const std::vector<std::string>& lines) {
  constexpr size_t kMost = 12, kEnd = 5;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines.size() > kMost && i == kEnd) {
      i = lines.size() - kEnd;
      fmt::print("  … {} more\n", i - kEnd);
    }
    fmt::print("  {}\n", lines[i]);
  }
}

// Returns the layer of a tensor, which is the scope that holds it. Only the first two parts of deep
// scopes count: InceptionV3/Mixed_5b.
std::string LayerOf(const std::string& name) {
  const size_t last = name.rfind('/');
  if (last == std::string::npos) return name;
  const size_t second = name.find('/', name.find('/') + 1);
  return name.substr(0, std::min(second, last));
}

// Prints how many tensors and values each layer has, in the order of the layers in the checkpoint.
void PrintLayers(const std::vector<Tensor>& tensors) {
  struct Layer {
    std::string name;
    int num_tensors = 0;
    int64_t num_values = 0;
  };
  std::vector<Layer> layers;
  std::map<std::string, size_t> index;
  for (const Tensor& tensor : tensors) {
    const std::string name = LayerOf(tensor.name);
    const size_t i = index.emplace(name, layers.size()).first->second;
    if (i == layers.size()) layers.push_back({.name = name});
    ++layers[i].num_tensors;
    layers[i].num_values += tensor.num_values;
  }
  std::vector<std::string> lines;
  for (const Layer& layer : layers) {
    lines.push_back(fmt::format("{:<40} {:>4} tensors {:>12} values", layer.name, layer.num_tensors,
                                layer.num_values));
  }
  PrintEnds(lines);
}

void PrintEach(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) fmt::print("  {:<64} {}\n", tensor.name, tensor.type);
}

void PrintTotal(std::string_view what, const std::vector<Tensor>& tensors, bool all) {
  int64_t num_values = 0;
  for (const Tensor& tensor : tensors) num_values += tensor.num_values;
  const bool has_more = !all && !tensors.empty();
  fmt::print("{} ({}, {} values{})\n", what, tensors.size(), num_values,
             has_more ? "; --all lists them" : "");
}

// Returns the size of a file, or of all files of a TensorFlow prefix.
std::string SizeOf(const std::filesystem::path& path) {
  uintmax_t bytes = 0;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path)) {
    bytes = std::filesystem::file_size(path, ignored);
  } else {
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(path.filename().string() + ".")) bytes += entry.file_size(ignored);
    }
  }
  return bytes == 0 ? "unknown" : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// Prints a checkpoint that another program wrote.
void PrintForeign(const io::WeightsSource& file, bool all) {
  fmt::print("{}\n", file.path());
  if (const auto step = file.step()) fmt::print("step {}\n", *step);
  if (!file.misfit_hint().empty()) fmt::print("note: {}\n", file.misfit_hint());
  fmt::print("size {}\n", SizeOf(file.path()));
  std::vector<Tensor> tensors;
  for (const std::string& name : file.names()) {
    const Shape shape = file.shape(name);
    tensors.push_back(
        {name, fmt::format("{:<9} {}", file.type(name), shape.ToString()), shape.size()});
  }
  PrintTotal("tensors", tensors, all);
  all ? PrintEach(tensors) : PrintLayers(tensors);
  std::vector<std::string> others;
  for (const std::string& other : file.other_tensors()) others.push_back("other: " + other);
  if (!all) return PrintEnds(others);
  for (const std::string& other : others) fmt::print("  {}\n", other);
}

nlohmann::ordered_json ForeignToJson(const io::WeightsSource& file) {
  nlohmann::ordered_json json{{"path", file.path()},
                              {"tensors", nlohmann::ordered_json::array()},
                              {"others", file.other_tensors()}};
  if (const auto step = file.step()) json["step"] = *step;
  for (const std::string& name : file.names()) {
    json["tensors"].push_back(
        {{"name", name}, {"type", file.type(name)}, {"shape", file.shape(name).ToString()}});
  }
  return json;
}

// Returns the digest of everything but the attributes. Runs that differ only in their flags have
// the same.
uint64_t StateDigest(io::Checkpoint checkpoint) {
  checkpoint.attributes.clear();
  return io::ComputeDigest(checkpoint);
}

// Returns the ledger of epochs; an empty one if the checkpoint has none, or a damaged one.
train::EpochHistory LedgerOf(const io::Checkpoint& checkpoint) {
  const auto found = checkpoint.attributes.find(train::kLedger);
  if (found == checkpoint.attributes.end()) return {};
  try {
    return train::EpochHistory::FromJson(found->second);
  } catch (const DataError& error) {
    LogWarning("checkpoint", "{}", WithoutTag(error.what()));
    return {};
  }
}

// Prints a line for each epoch: "  epoch 3: 298 records seen, 2 skipped (...), 0 duplicated".
void PrintLedger(const train::EpochHistory& ledger, bool all) {
  if (ledger.empty()) return;
  std::vector<std::string> lines;
  const auto add = [&lines](const train::EpochRecords& epoch) {
    lines.push_back(fmt::format(
        "epoch {}: {}{}{}, hash {:016x}", epoch.epoch, DescribeRecords(epoch),
        epoch.is_complete ? "" : fmt::format(", of {}", epoch.records),
        epoch.planned > 0 ? fmt::format(", {} as planned", epoch.planned) : "", epoch.counts.hash));
  };
  for (const train::EpochRecords& epoch : ledger.epochs) add(epoch);
  if (ledger.current) add(*ledger.current);
  const train::EpochHistory::Total& total = ledger.total;
  fmt::print("ledger ({} epochs ended: {} records seen, {} skipped, {} duplicated, {} missing)\n",
             total.epochs, total.seen, total.skipped, total.duplicated, total.missing);
  if (!all) return PrintEnds(lines);
  for (const std::string& line : lines) fmt::print("  {}\n", line);
}

nlohmann::ordered_json ToJson(const std::string& path, const io::Checkpoint& checkpoint) {
  nlohmann::ordered_json json{{"path", path},
                              {"digest", fmt::format("{:016x}", checkpoint.digest)},
                              {"state_digest", fmt::format("{:016x}", StateDigest(checkpoint))},
                              {"step", checkpoint.step},
                              {"epoch", checkpoint.epoch},
                              {"position", checkpoint.position},
                              {"seed", checkpoint.seed},
                              {"attributes", checkpoint.attributes}};
  if (const train::EpochHistory ledger = LedgerOf(checkpoint); !ledger.empty())
    json["ledger"] = nlohmann::ordered_json::parse(ledger.ToJson());
  for (const auto& [key, list] :
       {std::pair{"variables", &checkpoint.variables}, {"slots", &checkpoint.slots}}) {
    json[key] = nlohmann::ordered_json::array();
    for (const io::CheckpointVariable& variable : *list)
      json[key].push_back({{"name", variable.name}, {"shape", variable.shape.ToString()}});
  }
  return json;
}

std::vector<Tensor> ToTensors(const std::vector<io::CheckpointVariable>& variables) {
  std::vector<Tensor> tensors;
  for (const io::CheckpointVariable& variable : variables)
    tensors.push_back({variable.name, variable.shape.ToString(), variable.shape.size()});
  return tensors;
}

void Print(const std::string& path, const io::Checkpoint& checkpoint, bool all) {
  fmt::print("{}\n", path);
  std::vector<std::pair<std::string, std::string>> lines = {
      {"digest", fmt::format("{:016x}", checkpoint.digest)},
      {"state", fmt::format("{:016x}, the digest without attributes", StateDigest(checkpoint))},
      {"step", std::to_string(checkpoint.step)},
      {"epoch", fmt::format("{}, {} samples into it", checkpoint.epoch, checkpoint.position)},
      {"seed", std::to_string(checkpoint.seed)},
      {"size", SizeOf(path)}};
  for (const auto& [name, text] : checkpoint.attributes) {
    if (name == train::kLedger) continue;
    const auto more = std::count(text.begin(), text.end(), '\n');
    lines.emplace_back(name, text.substr(0, text.find('\n')) +
                                 (more > 0 ? fmt::format(" … and {} more", more) : ""));
  }
  size_t width = 0;
  for (const auto& [name, text] : lines) width = std::max(width, name.size());
  for (const auto& [name, text] : lines) fmt::print("{:<{}} {}\n", name, width, text);
  PrintLedger(LedgerOf(checkpoint), all);
  const std::vector<Tensor> variables = ToTensors(checkpoint.variables);
  const std::vector<Tensor> slots = ToTensors(checkpoint.slots);
  PrintTotal("variables", variables, all);
  all ? PrintEach(variables) : PrintLayers(variables);
  PrintTotal("slots", slots, all);
  if (all) PrintEach(slots);
}

// Opens a checkpoint and verifies it. This program's checkpoints are verified by their digest. Of
// others every tensor is read, which checks the checksums of TensorFlow's files; Keras's have none.
std::unique_ptr<io::WeightsSource> OpenVerified(const std::string& path) {
  std::unique_ptr<io::WeightsSource> file = io::OpenWeights(path);
  if (file->carole_checkpoint() != nullptr) return file;
  std::vector<float> values;
  for (const std::string& name : file->names()) {
    values.resize(static_cast<size_t>(file->shape(name).size()));
    file->Read(name, values);
  }
  (void)file->step();  // throws DataError if that is not a number of steps
  return file;
}

void Verify(const std::string& path) {
  const std::unique_ptr<io::WeightsSource> file = OpenVerified(path);
  if (const io::Checkpoint* own = file->carole_checkpoint()) {
    fmt::print("{}: step {}, digest {:016x}, all good\n", path, own->step, own->digest);
    return;
  }
  const bool is_keras = std::filesystem::is_regular_file(file->path()) && io::IsHdf5(file->path());
  fmt::print("{}: {} tensors, {}\n", file->path(), file->names().size(),
             is_keras ? "all readable; Keras's files have no checksums" : "all good");
}

// Returns the checkpoints of this program in a folder, or the path itself if there are none.
std::vector<std::string> FilesToVerify(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const io::CheckpointFile& file : io::ListCheckpoints(path)) files.push_back(file.path);
  return files.empty() ? std::vector{path} : files;
}

}  // namespace

int CheckpointInspect(const Arguments& arguments) {
  std::string path;
  bool json = false, all = false;
  CommandLine line(
      "carole checkpoint inspect",
      "Verifies a checkpoint of this program, Keras or TensorFlow, and prints a summary.",
      {"carole checkpoint inspect RUN", "carole checkpoint inspect --all RUN/model.ckpt-1000.h5"});
  line.AddPositionalPath("PATH", path,
                         "Checkpoint file, TensorFlow prefix, or a folder, whose newest intact "
                         "checkpoint is used.")
      .Required();
  line.Add("all", all, "Print each tensor with its shape, instead of sums of layers.",
           HelpLevel::kBasic);
  line.Add("json", json, "Print JSON, with each tensor.", HelpLevel::kBasic);
  if (!line.Parse(arguments)) return 0;
  const std::unique_ptr<io::WeightsSource> file = OpenVerified(path);
  if (json) {
    PrintJsonLine(file->carole_checkpoint() != nullptr
                      ? ToJson(file->path(), *file->carole_checkpoint())
                      : ForeignToJson(*file));
  } else if (file->carole_checkpoint() != nullptr) {
    Print(file->path(), *file->carole_checkpoint(), all);
  } else {
    PrintForeign(*file, all);
  }
  return 0;
}

int CheckpointVerify(const Arguments& arguments) {
  std::vector<std::string> paths;
  CommandLine line(
      "carole checkpoint verify",
      "Checks every value of checkpoints of this program, Keras or TensorFlow against their digest "
      "or checksums. The exit code is 65 if a checkpoint is damaged.",
      {"carole checkpoint verify RUN", "carole checkpoint verify RUN1/model.ckpt-1000.h5 RUN2"});
  line.AddPositionalPath(
          "PATH", paths,
          "Checkpoint files, TensorFlow prefixes, or folders, all of whose checkpoints "
          "are checked.")
      .Required();
  if (!line.Parse(arguments)) return 0;
  std::vector<std::string> errors;
  int num_files = 0;
  for (const std::string& path : paths) {
    for (const std::string& file : FilesToVerify(path)) {
      ++num_files;
      try {
        Verify(file);
      } catch (const DataError& error) {  // goes on: other checkpoints may be good
        errors.emplace_back(error.what());
      }
    }
  }
  if (errors.empty()) return 0;
  if (num_files == 1) throw DataError(errors[0]);
  for (const std::string& error : errors) LogError("checkpoint", "{}", WithoutTag(error));
  throw DataError(
      fmt::format("[checkpoint] {} of {} checkpoints are bad", errors.size(), num_files));
}

}  // namespace carole::commands
