// Charts as inline SVG: axes with round numbers, lines, stacked areas. Colors come from the page's
// style, so that it can be light or dark.
#pragma once

#include <string>
#include <vector>

namespace carole::monitoring {

// Values that are not finite leave a gap.
struct Series {
  std::string name;
  std::vector<double> x, y;
  bool faint = false;    // behind the others, without a name of its own
  bool markers = false;  // a dot for each value, dashes between them
  int color = 0;
};

struct ChartOptions {
  std::string id;  // of the <figure>
  std::string title;
  std::string unit;        // of y, behind the title
  bool stacked = false;    // areas on each other, all with the same x
  bool from_zero = false;  // the axis of y begins there
  double y_max = 0;        // the axis of y ends there; 0: where the values do
};

// A <figure> with caption, legend and drawing; y is logarithmic where all values are positive and
// some line is spread over more than two decades. Without any values it says so.
std::string DrawChart(const ChartOptions& options, const std::vector<Series>& series);

// Each value as the mean of its neighbors, a fiftieth of all; of those on one side at the ends.
std::vector<double> Smooth(const std::vector<double>& values);

// Up to about `count` round numbers in [low, high].
std::vector<double> Ticks(double low, double high, int count);

// "1.5k", "20M", "0.004": for axes.
std::string Short(double value);

std::string EscapeHtml(std::string_view text);

}  // namespace carole::monitoring
