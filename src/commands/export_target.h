// What `carole export` writes: the format that the name of the output means, and the checks that
// protect existing files. Uses the values of --format: onnx, graphdef, saved_model, safetensors.
#pragma once

#include <string>
#include <string_view>

namespace carole::commands {

// The value of --format that stands for the format of the name's ending.
inline constexpr std::string_view kAutoFormat = "auto";
// The format that is a folder. All others are one file.
inline constexpr std::string_view kSavedModelFormat = "saved_model";

// Returns the format to write. It is `format`, or for kAutoFormat that of the ending of `output`;
// onnx if the ending means no format. Throws UsageError if the ending means another format than
// `format`, or a format that `carole export` does not write.
std::string ResolveExportFormat(const std::string& format, const std::string& output);

// Whether the ending of `output` means a graphdef as text.
bool IsTextGraph(const std::string& output);

// Checks that `output` is no folder if the format is one file. The folder of a SavedModel must not
// be a file, and must be new or empty or hold a SavedModel. Throws UsageError if that is not so,
// DiskError if the folder cannot be read.
void RequireUsableOutput(const std::string& format, const std::string& output);

// Returns the path of the file that is written: in the folder `output` for a SavedModel.
std::string WrittenFile(const std::string& format, const std::string& output);

// Throws UsageError if writing the file `written` would replace a file of the checkpoint that is
// read, also if the two have different paths. `target`: how the error names the target.
// `checkpoint`: WeightsSource::path().
void ProtectCheckpoint(const std::string& target, const std::string& checkpoint,
                       const std::string& written);

}  // namespace carole::commands
