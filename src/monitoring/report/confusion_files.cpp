// Writes the confusion matrix as a table for spreadsheets, as an image, and as a page with names.
#include "src/monitoring/report/confusion_files.h"

#include <fmt/format.h>

#include "io/image/image.h"
#include "src/core/files/disk.h"
#include "src/monitoring/report/confusion.h"

namespace carole::monitoring {
namespace {

// Quotes a field of a CSV file as RFC 4180 says.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// Rows are labels, columns predictions.
std::string ConfusionCsv(const train::Metrics& metrics, const std::vector<std::string>& names) {
  std::string csv = "label\\prediction";
  for (int64_t p = 0; p < metrics.num_classes(); ++p) csv += "," + Quoted(LabelName(names, p));
  for (int64_t label = 0; label < metrics.num_classes(); ++label) {
    csv += "\r\n" + Quoted(LabelName(names, label));
    for (int64_t p = 0; p < metrics.num_classes(); ++p)
      csv += fmt::format(",{}", metrics.confusion(label, p));
  }
  return csv + "\r\n";
}

}  // namespace

void WriteConfusion(const std::string& folder, const ConfusionPageInfo& info,
                    const train::Metrics& metrics) {
  MakeFolder("eval", folder);
  WriteWholeFile(folder + "/confusion.csv", ConfusionCsv(metrics, info.class_names));
  WriteWholeFile(folder + "/confusion.png", io::EncodePng(ConfusionImage(metrics).view()));
  WriteWholeFile(folder + "/confusion.html", MakeConfusionPage(info, metrics));
}

}  // namespace carole::monitoring
