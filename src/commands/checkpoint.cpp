// carole checkpoint inspect | verify.
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

// What other programs wrote.
void PrintForeign(const io::WeightsReader& file) {
  fmt::print("{}\n", file.path());
  if (const auto step = file.step()) fmt::print("step {}\n", *step);
  int64_t count = 0;
  for (const std::string& name : file.names()) count += file.shape(name).size();
  fmt::print("tensors ({}, {} values)\n", file.names().size(), count);
  for (const std::string& name : file.names())
    fmt::print("  {:<64} {:<9} {}\n", name, file.type(name), file.shape(name).ToString());
  for (const std::string& other : file.left_out()) fmt::print("  other: {}\n", other);
}

nlohmann::ordered_json ForeignToJson(const io::WeightsReader& file) {
  nlohmann::ordered_json json{{"path", file.path()},
                              {"tensors", nlohmann::ordered_json::array()},
                              {"others", file.left_out()}};
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

// Of all but the attributes: runs that differ in their flags only have the same.
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
      {"state", fmt::format("{:016x}, without attributes", StateDigest(checkpoint))},
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

// Verified: ours by its digest; of others every tensor is read, and with it the checksums that
// TensorFlow's files have and Keras's lack.
std::unique_ptr<io::WeightsReader> OpenVerified(const std::string& path) {
  std::unique_ptr<io::WeightsReader> file = io::OpenWeights(path);
  if (file->own() != nullptr) return file;
  std::vector<float> values;
  for (const std::string& name : file->names()) {
    values.resize(static_cast<size_t>(file->shape(name).size()));
    file->Read(name, values);
  }
  return file;
}

void Verify(const std::string& path) {
  const std::unique_ptr<io::WeightsReader> file = OpenVerified(path);
  if (const io::Checkpoint* own = file->own()) {
    fmt::print("{}: step {}, digest {:016x}, all good\n", path, own->step, own->digest);
    return;
  }
  const bool is_keras = std::filesystem::is_regular_file(file->path()) && io::IsHdf5(file->path());
  fmt::print("{}: {} tensors, {}\n", file->path(), file->names().size(),
             is_keras ? "all readable; files of Keras have no checksums" : "all good");
}

// Of this program in a folder, or else what another wrote there.
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
  CommandLine line("carole checkpoint inspect",
                   "Verifies a checkpoint, of this program or another, and prints what it "
                   "holds.");
  line.AddPositional("PATH", path, "a file, or a folder for its newest good checkpoint")
      ->required();
  line.AddBool("json", json, "print JSON");
  if (!line.Parse(arguments)) return 0;
  const std::unique_ptr<io::WeightsReader> file = OpenVerified(path);
  if (json) {
    PrintJsonLine(file->own() != nullptr ? ToJson(file->path(), *file->own())
                                         : ForeignToJson(*file));
  } else if (file->own() != nullptr) {
    Print(file->path(), *file->own());
  } else {
    PrintForeign(*file);
  }
  return 0;
}

int CheckpointVerify(const Arguments& arguments) {
  std::vector<std::string> paths;
  CommandLine line(
      "carole checkpoint verify",
      "Checks every weight, slot and number of checkpoints, of this program or another, against "
      "their digest or checksums; damage ends with exit code 65.");
  line.AddPositional("PATHS", paths, "files, or folders for all of their checkpoints")->required();
  if (!line.Parse(arguments)) return 0;
  std::vector<std::string> errors;
  int num_files = 0;
  for (const std::string& path : paths) {
    for (const std::string& file : FilesToVerify(path)) {
      ++num_files;
      try {
        Verify(file);
      } catch (const DataError& error) {  // the others may be good
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
