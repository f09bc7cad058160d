// The confusion matrix as a table for spreadsheets and as a picture.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "io/image.h"
#include "src/commands/evaluation.h"
#include "src/core/error.h"
#include "src/watch/confusion_picture.h"

namespace carole::commands {
namespace {

// RFC 4180.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// Rows are labels, columns predictions.
std::string ConfusionCsv(const train::Metrics& metrics, const std::vector<std::string>& names) {
  std::string csv = "label\\prediction";
  for (int64_t p = 0; p < metrics.num_classes(); ++p)
    csv += "," + Quoted(watch::LabelName(names, p));
  for (int64_t label = 0; label < metrics.num_classes(); ++label) {
    csv += "\r\n" + Quoted(watch::LabelName(names, label));
    for (int64_t p = 0; p < metrics.num_classes(); ++p)
      csv += fmt::format(",{}", metrics.confusion(label, p));
  }
  return csv + "\r\n";
}

void WriteFile(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw DiskError(fmt::format("[eval] {}: cannot be written", path.string()));
}

}  // namespace

void WriteConfusion(const std::string& folder, const train::Metrics& metrics,
                    const std::vector<std::string>& names) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw DiskError(fmt::format("[eval] {}: cannot make the folder: {}", folder, error.message()));
  WriteFile(std::filesystem::path(folder) / "confusion.csv", ConfusionCsv(metrics, names));
  WriteFile(std::filesystem::path(folder) / "confusion.png",
            io::EncodePng(watch::ConfusionPicture(metrics).view()));
}

}  // namespace carole::commands
