#include "src/monitoring/report/confusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/monitoring/report/chart.h"

namespace carole::monitoring {
namespace {

constexpr int64_t kMaxNumberedClasses = 20;
constexpr size_t kMaxPairs = 20;

std::string NameOf(const std::vector<std::string>& names, int64_t label) {
  return EscapeHtml(LabelName(names, label));
}

// Returns the name, shortened to the space next to the matrix. The whole name is shown when the
// mouse pointer is on it.
std::string ShortName(const std::vector<std::string>& names, int64_t label) {
  constexpr int kCharacters = 16;
  const std::string name = LabelName(names, label);  // UTF-8
  int characters = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(name[i]) & 0xc0) != 0x80;
    if (begins && characters++ == kCharacters)
      return EscapeHtml(name.substr(0, i)) + "…<title>" + EscapeHtml(name) + "</title>";
  }
  return EscapeHtml(name);
}

int64_t SamplesOf(const Confusion& c, int64_t label) {
  return train::SamplesOf(c.counts, label, c.num_classes);
}

std::string DrawCell(const Confusion& c, int64_t label, int64_t prediction, double size,
                     const std::string& title) {
  const int64_t count = c.at(label, prediction);
  if (count == 0) return "";
  const double share =
      static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, SamplesOf(c, label)));
  const double x = static_cast<double>(prediction) * size, y = static_cast<double>(label) * size;
  std::string svg = fmt::format(
      "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
      "fill-opacity=\"{:.3f}\"><title>{}: {}</title></rect>",
      label == prediction ? "right" : "wrong", x, y, size, size, 0.1 + 0.9 * std::sqrt(share),
      title, count);
  if (c.num_classes > kMaxNumberedClasses) return svg;
  return svg + fmt::format("<text class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\">{}</text>",
                           share > 0.7    ? "dark"
                           : share > 0.35 ? "half"
                                          : "",
                           x + size / 2, y + size / 2 + 4, count);
}

// Draws the matrix with class names on the left and on top. Names on top are slanted, or vertical
// if there are many.
std::string DrawMatrix(const Confusion& c, const std::vector<std::string>& names) {
  constexpr double kSide = 560, kLeft = 125, kTop = 125, kRight = 100;
  const int turn = c.num_classes > kMaxNumberedClasses ? -90 : -35;
  const double size = kSide / static_cast<double>(c.num_classes);
  std::string svg = fmt::format(
      "<svg class=\"matrix\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"confusion "
      "matrix\"><g transform=\"translate({:.0f} {:.0f})\"><rect class=\"frame\" width=\"{:.0f}\" "
      "height=\"{:.0f}\"/>",
      kLeft + kSide + kRight, kTop + kSide + 4, kLeft, kTop, kSide, kSide);
  for (int64_t i = 0; i < c.num_classes; ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * size;
    const std::string name = ShortName(names, i);
    svg += fmt::format(
        "<text class=\"label\" x=\"-6\" y=\"{:.2f}\">{}</text>"
        "<text class=\"column\" transform=\"translate({:.2f} -6) rotate({})\">{}</text>",
        middle + 4, name, middle + (turn == -90 ? 4 : 0), turn, name);
  }
  for (int64_t label = 0; label < c.num_classes; ++label) {
    for (int64_t p = 0; p < c.num_classes; ++p)
      svg +=
          DrawCell(c, label, p, size, NameOf(names, label) + " predicted as " + NameOf(names, p));
  }
  return svg + "</g></svg>";
}

std::string DrawPairs(const Confusion& c, const std::vector<std::string>& names) {
  std::vector<std::pair<int64_t, int64_t>> wrong;  // cells and their counts
  for (const auto& [cell, count] : c.counts) {
    if (cell / c.num_classes != cell % c.num_classes) wrong.emplace_back(cell, count);
  }
  const size_t shown = std::min(kMaxPairs, wrong.size());
  std::partial_sort(wrong.begin(), wrong.begin() + static_cast<int64_t>(shown), wrong.end(),
                    [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string html =
      "<table><tr><th>class</th><th>predicted as</th><th>images</th><th>of</th></tr>";
  for (size_t i = 0; i < shown; ++i) {
    const auto& [cell, count] = wrong[i];
    const int64_t label = cell / c.num_classes;
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", NameOf(names, label),
                    NameOf(names, cell % c.num_classes), count, SamplesOf(c, label));
  }
  return html + "</table>";
}

}  // namespace

std::string DrawConfusion(const Confusion& confusion, const std::vector<std::string>& names) {
  if (confusion.num_classes == 0) return "";
  const bool drawn = confusion.num_classes <= kMaxDrawnClasses;
  return fmt::format(
      "<figure id=\"confusion\"{}><figcaption>{} <small>evaluation at step {}{}</small>"
      "</figcaption>{}</figure>\n",
      confusion.num_classes > kMaxNumberedClasses ? " class=\"wide\"" : "",
      drawn ? "confusion matrix" : "most frequent confusions", confusion.step,
      drawn ? "; rows: classes, columns: predictions" : "",
      drawn ? DrawMatrix(confusion, names) : DrawPairs(confusion, names));
}

}  // namespace carole::monitoring
