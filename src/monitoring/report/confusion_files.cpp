// As a table for spreadsheets, as pixels and as a page with names.
#include "src/monitoring/report/confusion_files.h"

#include <fmt/format.h>

#include "io/image/image.h"
#include "src/core/files/disk.h"
#include "src/monitoring/report/confusion.h"

namespace carole::monitoring {
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
  for (int64_t p = 0; p < metrics.num_classes(); ++p) csv += "," + Quoted(LabelName(names, p));
  for (int64_t label = 0; label < metrics.num_classes(); ++label) {
    csv += "\r\n" + Quoted(LabelName(names, label));
    for (int64_t p = 0; p < metrics.num_classes(); ++p)
      csv += fmt::format(",{}", metrics.confusion(label, p));
  }
  return csv + "\r\n";
}

}  // namespace

void WriteConfusion(const std::string& folder, const ConfusionFacts& facts,
                    const train::Metrics& metrics) {
  MakeFolder("eval", folder);
  WriteWholeFile(folder + "/confusion.csv", ConfusionCsv(metrics, facts.class_names));
  WriteWholeFile(folder + "/confusion.png", io::EncodePng(ConfusionPicture(metrics).view()));
  WriteWholeFile(folder + "/confusion.html", MakeConfusionPage(facts, metrics));
}

}  // namespace carole::monitoring
