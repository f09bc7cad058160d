// carole checkpoint inspect, carole checkpoint verify.
#include "io/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "io/checkpoint/checkpoint_folder.h"
#include "io/checkpoint/hdf5.h"
#include "io/weights/open_weights.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/json.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::commands {
namespace {

// Prints a checkpoint that another program wrote.
void PrintForeign(const io::WeightsSource& file) {
  fmt::print("{}\n", file.path());
  if (const auto step = file.step()) fmt::print("step {}\n", *step);
  int64_t count = 0;
  for (const std::string& name : file.names()) count += file.shape(name).size();
  fmt::print("tensors ({}, {} values)\n", file.names().size(), count);
  for (const std::string& name : file.names())
    fmt::print("  {:<64} {:<9} {}\n", name, file.type(name), file.shape(name).ToString());
  for (const std::string& other : file.other_tensors()) fmt::print("  other: {}\n", other);
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

int64_t CountElements(const std::vector<io::CheckpointVariable>& variables) {
  int64_t count = 0;
  for (const io::CheckpointVariable& variable : variables) count += variable.shape.size();
  return count;
}

// Returns the digest of everything but the attributes. Runs that differ only in their flags have
// the same.
uint64_t StateDigest(io::Checkpoint checkpoint) {
  checkpoint.attributes.clear();
  return io::ComputeDigest(checkpoint);
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
  for (const auto& [key, list] :
       {std::pair{"variables", &checkpoint.variables}, {"slots", &checkpoint.slots}}) {
    json[key] = nlohmann::ordered_json::array();
    for (const io::CheckpointVariable& variable : *list)
      json[key].push_back({{"name", variable.name}, {"shape", variable.shape.ToString()}});
  }
  return json;
}

void PrintVariables(std::string_view what, const std::vector<io::CheckpointVariable>& variables) {
  fmt::print("{} ({}, {} values)\n", what, variables.size(), CountElements(variables));
  for (const io::CheckpointVariable& variable : variables)
    fmt::print("  {:<64} {}\n", variable.name, variable.shape.ToString());
}

void Print(const std::string& path, const io::Checkpoint& checkpoint) {
  fmt::print("{}\n", path);
  std::vector<std::pair<std::string, std::string>> lines = {
      {"digest", fmt::format("{:016x}", checkpoint.digest)},
      {"state", fmt::format("{:016x}, the digest without attributes", StateDigest(checkpoint))},
      {"step", std::to_string(checkpoint.step)},
      {"epoch", fmt::format("{}, {} samples into it", checkpoint.epoch, checkpoint.position)},
      {"seed", std::to_string(checkpoint.seed)}};
  for (const auto& [name, text] : checkpoint.attributes) {
    const auto more = std::count(text.begin(), text.end(), '\n');
    lines.emplace_back(name, text.substr(0, text.find('\n')) +
                                 (more > 0 ? fmt::format(" … and {} more", more) : ""));
  }
  size_t width = 0;
  for (const auto& [name, text] : lines) width = std::max(width, name.size());
  for (const auto& [name, text] : lines) fmt::print("{:<{}} {}\n", name, width, text);
  PrintVariables("variables", checkpoint.variables);
  PrintVariables("slots", checkpoint.slots);
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
  bool json = false;
  CommandLine line(
      "carole checkpoint inspect",
      "Verifies a checkpoint of this program, Keras or TensorFlow, and prints its "
      "contents.",
      {"carole checkpoint inspect RUN", "carole checkpoint inspect --json RUN/model.ckpt-1000.h5"});
  line.AddPositionalPath("PATH", path,
                         "Checkpoint file, TensorFlow prefix, or a folder, whose newest intact "
                         "checkpoint is used.")
      .Required();
  line.Add("json", json, "Print JSON.", HelpLevel::kBasic);
  if (!line.Parse(arguments)) return 0;
  const std::unique_ptr<io::WeightsSource> file = OpenVerified(path);
  if (json) {
    PrintJsonLine(file->carole_checkpoint() != nullptr
                      ? ToJson(file->path(), *file->carole_checkpoint())
                      : ForeignToJson(*file));
  } else if (file->carole_checkpoint() != nullptr) {
    Print(file->path(), *file->carole_checkpoint());
  } else {
    PrintForeign(*file);
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
