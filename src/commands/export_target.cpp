#include "src/commands/export_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <vector>

#include "io/tensorflow/tf_checkpoint.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/text/join_names.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefaultFormat = "onnx";
constexpr std::string_view kTextGraph = ".pbtxt";
constexpr const char* kSavedModelFile = "saved_model.pb";

// The endings of the formats that are one file. The first one of a format is suggested in errors.
struct Ending {
  std::string_view ending;
  std::string_view format;
};
constexpr Ending kEndings[] = {
    {".onnx", "onnx"},
    {".pb", "graphdef"},
    {kTextGraph, "graphdef"},
    {".safetensors", "safetensors"},
};

// Endings of formats that are not written. `ending` also stands for `ending`-TEXT, as in .ckpt-30.
struct ForeignEnding {
  std::string_view ending;
  std::string_view remedy;
};
constexpr std::string_view kConvertToHdf5 =
    "`carole checkpoint convert` writes NAME.h5, which Keras reads";
constexpr std::string_view kConvertToTf =
    "`carole checkpoint convert` writes TensorFlow's checkpoints";
constexpr std::string_view kUseSafetensors =
    "write NAME.safetensors, which the Python package safetensors reads";
constexpr ForeignEnding kForeignEndings[] = {
    {".tflite",
     "write the frozen graph, --format=graphdef --freeze --output=NAME.pb, which TensorFlow's "
     "TFLite converter reads"},
    {".h5", kConvertToHdf5},
    {".hdf5", kConvertToHdf5},
    {".keras", kConvertToHdf5},
    {".ckpt", kConvertToTf},
    {".index", kConvertToTf},
    {".meta", kConvertToTf},
    {".data", kConvertToTf},
    {".npz", kUseSafetensors},
    {".pt", kUseSafetensors},
    {".pth", kUseSafetensors},
};

std::string EndingOf(const std::string& output) {
  std::string ending = fs::path(output).extension();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending;
}

// Returns the endings of a format, or of all formats if `format` is empty.
std::string EndingsOf(std::string_view format) {
  std::vector<std::string_view> endings;
  for (const Ending& row : kEndings) {
    if (format.empty() || row.format == format) endings.push_back(row.ending);
  }
  return JoinTexts(endings, " or ");
}

// Throws UsageError if the ending is that of a format that is not written.
void RefuseForeign(const std::string& output, std::string_view ending) {
  for (const ForeignEnding& row : kForeignEndings) {
    if (ending != row.ending && !ending.starts_with(std::string(row.ending) + "-")) continue;
    throw UsageError(
        fmt::format("[export] --output: {}: this format is not written: got {}, want {}, or a "
                    "folder with --format={}; {}",
                    output, ending, EndingsOf(""), kSavedModelFormat, row.remedy));
  }
}

void RequireFile(const std::string& format, const std::string& output) {
  std::error_code error;  // whatever it is, writing the file finds it again
  if (!output.ends_with('/') && !fs::is_directory(output, error)) return;
  const auto* const row = std::ranges::find(kEndings, format, &Ending::format);
  const fs::path example = fs::path(output) / ("net" + std::string(row->ending));
  throw UsageError(
      fmt::format("[export] --output: {}: does not fit --format={}: got a folder, want a file; "
                  "name a file such as {}, or choose --format={}",
                  output, format, example.string(), kSavedModelFormat));
}

// A temporary file of a SavedModel (TemporaryNameOf()), which a killed process may leave.
bool IsTemporary(const std::string& name) {
  return name.starts_with("." + std::string(kSavedModelFile) + ".") && name.ends_with(".tmp");
}

void RequireSavedModelFolder(const std::string& output) {
  std::error_code error;
  const fs::file_status status = fs::status(output, error);
  if (!fs::exists(status)) return;  // or it cannot be reached, which making the folder finds again
  if (!fs::is_directory(status)) {
    throw UsageError(fmt::format(
        "[export] --output: {}: does not fit --format={}: got a file, want a folder; name another "
        "folder, or remove the file",
        output, kSavedModelFormat));
  }
  std::vector<std::string> names = NamesIn(output, error);
  if (error) ThrowDiskError("export", output, "read the folder", error.value());
  if (std::ranges::find(names, kSavedModelFile) != names.end()) return;
  std::erase_if(names, IsTemporary);
  if (names.empty()) return;
  std::ranges::sort(names);
  constexpr size_t kMaxShown = 3;
  throw UsageError(fmt::format(
      "[export] --output: {}: the folder has other files: got {}, want a new folder, "
      "an empty one or a SavedModel; name another folder such as {}",
      output, JoinFirst(names, kMaxShown), (fs::path(output) / kSavedModelFormat).string()));
}

// Returns the files that a checkpoint may have: one file, or those of TensorFlow's V1 or V2. The
// file that names it and the graph of the same SavedModel are added, even if they do not exist.
std::vector<fs::path> FilesOf(const fs::path& checkpoint) {
  const fs::path folder = checkpoint.parent_path();
  const std::string prefix = checkpoint.filename();
  const auto shards = io::ParseTfV1Shards(prefix);
  std::vector<fs::path> files = {checkpoint, folder / "checkpoint"};
  if (folder.filename() == "variables") files.push_back(folder.parent_path() / kSavedModelFile);
  std::error_code ignored;  // the checkpoint was read from this folder
  for (const std::string& name : NamesIn(folder.empty() ? "." : folder, ignored)) {
    const auto shard = io::ParseTfV1Shards(name);
    const bool is_v1 = shards && shard && shard->prefix == shards->prefix;
    const bool is_v2 = name == prefix + ".index" || name == prefix + ".meta" ||
                       name.starts_with(prefix + ".data-");
    if (is_v1 || is_v2) files.push_back(folder / name);
  }
  return files;
}

}  // namespace

std::string ResolveExportFormat(const std::string& format, const std::string& output) {
  const std::string ending = EndingOf(output);
  RefuseForeign(output, ending);
  const auto* const row = std::ranges::find(kEndings, ending, &Ending::ending);
  const bool is_known = row != std::end(kEndings);
  if (format == kAutoFormat) return std::string(is_known ? row->format : kDefaultFormat);
  if (!is_known || row->format == format) return format;
  const std::string wanted = EndingsOf(format);
  throw UsageError(fmt::format(
      "[export] --output: {}: does not fit --format={}: got {}, which is {}, want {}; change the "
      "name, or leave --format out",
      output, format, ending, row->format, wanted.empty() ? "the name of a folder" : wanted));
}

bool IsTextGraph(const std::string& output) { return EndingOf(output) == kTextGraph; }

void RequireUsableOutput(const std::string& format, const std::string& output) {
  format == kSavedModelFormat ? RequireSavedModelFolder(output) : RequireFile(format, output);
}

std::string WrittenFile(const std::string& format, const std::string& output) {
  return format == kSavedModelFormat ? fs::path(output) / kSavedModelFile : fs::path(output);
}

void ProtectCheckpoint(const std::string& target, const std::string& checkpoint,
                       const std::string& written) {
  for (const fs::path& file : FilesOf(checkpoint)) {
    std::error_code ignored;  // a file that does not exist is no other file
    if (!fs::equivalent(written, file, ignored)) continue;
    throw UsageError(
        fmt::format("{}: would replace {}, a file of the checkpoint that is read: want another "
                    "file; choose another name or folder",
                    target, file.string()));
  }
}

}  // namespace carole::commands
