// The confusion matrix as a table for spreadsheets and as a picture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "io/image.h"
#include "src/commands/evaluation.h"
#include "src/core/error.h"

namespace carole::commands {
namespace {

// RFC 4180.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string NameOf(const std::vector<std::string>& names, int64_t label) {
  return label < static_cast<int64_t>(names.size()) ? names[label] : std::to_string(label);
}

// Rows are labels, columns predictions.
std::string ConfusionCsv(const train::Metrics& metrics, const std::vector<std::string>& names) {
  std::string csv = "label\\prediction";
  for (int64_t p = 0; p < metrics.num_classes(); ++p) csv += "," + Quoted(NameOf(names, p));
  for (int64_t label = 0; label < metrics.num_classes(); ++label) {
    csv += "\r\n" + Quoted(NameOf(names, label));
    for (int64_t p = 0; p < metrics.num_classes(); ++p)
      csv += fmt::format(",{}", metrics.confusion(label, p));
  }
  return csv + "\r\n";
}

// A square for each cell, the darker the larger its share of the label's samples.
io::Image ConfusionPicture(const train::Metrics& metrics) {
  constexpr int64_t kPixels = 600, kLargestCell = 32;
  constexpr double kWhite[] = {255, 255, 255}, kDark[] = {8, 48, 107};
  const int64_t classes = metrics.num_classes();
  const int64_t cell = std::clamp<int64_t>(kPixels / classes, 1, kLargestCell);
  const int side = static_cast<int>(classes * cell);
  io::Image image{.height = side, .width = side, .channels = 3};
  image.pixels.resize(static_cast<size_t>(side) * side * 3);
  for (int64_t label = 0; label < classes; ++label) {
    const double samples = std::max<double>(1, static_cast<double>(metrics.samples_of(label)));
    for (int64_t p = 0; p < classes; ++p) {
      const double share = std::sqrt(static_cast<double>(metrics.confusion(label, p)) / samples);
      for (int64_t y = label * cell; y < (label + 1) * cell; ++y) {
        for (int64_t x = p * cell; x < (p + 1) * cell; ++x) {
          for (int c = 0; c < 3; ++c)
            image.pixels[(y * side + x) * 3 + c] =
                static_cast<uint8_t>(kWhite[c] + share * (kDark[c] - kWhite[c]));
        }
      }
    }
  }
  return image;
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
            io::EncodePng(ConfusionPicture(metrics).view()));
}

}  // namespace carole::commands
