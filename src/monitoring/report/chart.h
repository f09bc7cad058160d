// Draws charts as inline SVG: axes with round numbers, lines, stacked areas. The colors come from
// the style of the page, so the page can be light or dark.
#pragma once

#include <string>
#include <vector>

namespace carole::monitoring {

// One line or area. A value that is not finite leaves a gap.
struct Series {
  std::string name;
  std::vector<double> x, y;
  bool faint = false;    // drawn thin and pale, and not listed in the legend
  bool markers = false;  // a dot for each value, and a dashed line between them
  int color = 0;         // index of a color of the style, 0 to 5
};

struct ChartOptions {
  std::string id;  // of the <figure> element
  std::string title;
  std::string unit;        // of y; shown after the title
  bool stacked = false;    // areas on top of each other; all series must have the same x
  bool from_zero = false;  // the y axis starts at 0
  double y_max = 0;        // the y axis ends here; 0: at the largest value
};

// Returns a <figure> element with caption, legend and drawing. The y axis is logarithmic if all
// values are positive and some line extends over more than two decades. If there are no values, the
// figure says so.
std::string DrawChart(const ChartOptions& options, const std::vector<Series>& series);

// Returns moving averages: each value becomes the mean of a window of 2 % of all values around it.
// At the ends the window is cut off.
std::vector<double> Smooth(const std::vector<double>& values);

// Returns about `count` round numbers in [low, high], for an axis.
std::vector<double> Ticks(double low, double high, int count);

// Formats a number for an axis: "1.5k", "20M", "0.004".
std::string FormatShort(double value);

// Escapes &, <, > and ".
std::string EscapeHtml(std::string_view text);

}  // namespace carole::monitoring
