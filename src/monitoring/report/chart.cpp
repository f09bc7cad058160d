#include "src/monitoring/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace carole::monitoring {
namespace {

// Size of the drawing and edges of the plot area, in drawing units. The page scales the drawing.
constexpr double kWidth = 640, kHeight = 250;
constexpr double kLeft = 52, kRight = 628, kTop = 8, kBottom = 224;
constexpr double kMinLogRatio = 100;  // of a line's largest to smallest value for a log axis

struct Axis {
  double low = 0, high = 1;
  double from = 0, to = 1;  // drawing units
  bool is_log = false;

  double operator()(double value) const {
    const double share =
        is_log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + std::clamp(share, 0.0, 1.0) * (to - from);
  }
};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

Axis MakeX(const Range& x) {
  return {.low = x.low, .high = x.high > x.low ? x.high : x.low + 1, .from = kLeft, .to = kRight};
}

Axis MakeY(const ChartOptions& options, Range y, bool is_log) {
  Axis axis{.from = kBottom, .to = kTop};
  axis.is_log = is_log;
  if (options.stacked || options.from_zero) y.low = std::min(y.low, 0.0);
  if (options.y_max > 0) y.high = options.y_max;
  if (y.high - y.low <= 1e-5 * std::abs(y.high)) {  // draw a constant in the middle
    const double margin = y.high == 0 ? 1 : std::abs(y.high) * 0.5;
    y.low -= y.low == 0 ? 0 : margin;
    y.high += margin;
  } else if (!axis.is_log && options.y_max == 0) {
    const double margin = 0.05 * (y.high - y.low);
    if (y.low != 0) y.low -= margin;
    y.high += margin;
  }
  axis.low = y.low;
  axis.high = y.high;
  return axis;
}

bool IsLog(const ChartOptions& options, const std::vector<Series>& series, const Range& all) {
  if (options.stacked || options.from_zero || all.low <= 0) return false;
  return std::any_of(series.begin(), series.end(), [](const Series& s) {
    Range range;
    for (double value : s.y) range.Add(value);
    return !s.faint && range.high > kMinLogRatio * range.low;
  });
}

// Returns powers of ten; if these are few, also their multiples by 2 and 5.
std::vector<double> LogTicks(double low, double high) {
  std::vector<double> ticks;
  const double decades = std::log10(high / low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  for (int e = static_cast<int>(std::floor(std::log10(low))); e <= std::log10(high); e += stride) {
    for (double digit : {1.0, 2.0, 5.0}) {
      const double tick = digit * std::pow(10, e);
      if ((digit == 1 || decades < 3) && tick >= low && tick <= high) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::string DrawAxes(const Axis& x, const Axis& y) {
  std::string svg = "<g class=\"axes\">";
  const auto ticks = y.is_log ? LogTicks(y.low, y.high) : Ticks(y.low, y.high, 6);
  for (double tick : ticks) {
    svg += fmt::format(
        "<path d=\"M{:.0f} {:.1f}H{:.0f}\"/><text x=\"{:.0f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>",
        kLeft, y(tick), kRight, kLeft - 6, y(tick) + 4, FormatShort(tick));
  }
  for (double tick : Ticks(x.low, x.high, static_cast<int>(std::clamp(x.high - x.low, 1.0, 6.0)))) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>", x(tick),
                       kBottom + 17, FormatShort(tick));
  }
  return svg + fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">step</text></g>",
                           kLeft - 22, kBottom + 17);
}

// Formats a coordinate in drawing units. The script computes values from coordinates; 7 digits are
// enough for a step of a million, and for a loss of 0.001 on an axis up to 8.
std::string FormatCoordinate(double value) { return fmt::format("{:.7g}", value); }

// Returns a list of points for each run of finite values.
std::vector<std::string> PolylinePoints(const Series& s, const Axis& x, const Axis& y) {
  std::vector<std::string> runs;
  bool in_run = false;
  for (size_t i = 0; i < s.x.size(); ++i) {
    if (!std::isfinite(s.y[i])) {
      in_run = false;
      continue;
    }
    if (!std::exchange(in_run, true)) runs.emplace_back();
    runs.back() += fmt::format("{}{},{}", runs.back().empty() ? "" : " ",
                               FormatCoordinate(x(s.x[i])), FormatCoordinate(y(s.y[i])));
  }
  return runs;
}

std::string DrawLine(const Series& s, const Axis& x, const Axis& y) {
  std::string svg;
  for (const std::string& points : PolylinePoints(s, x, y)) {
    svg += fmt::format("<polyline class=\"line s{}{}{}\"{} points=\"{}\"/>", s.color,
                       s.faint ? " faint" : "", s.markers ? " dashed" : "",
                       s.faint ? "" : fmt::format(" data-name=\"{}\"", EscapeHtml(s.name)), points);
  }
  if (!s.markers) return svg;
  for (size_t i = 0; i < s.x.size(); ++i) {
    if (std::isfinite(s.y[i])) {
      svg += fmt::format("<circle class=\"dot f{}\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"2.6\"/>",
                         s.color, x(s.x[i]), y(s.y[i]));
    }
  }
  return svg;
}

// Draws the area between the lines `below` and `top`, which hold y values.
std::string DrawArea(const Series& s, const std::vector<double>& below,
                     const std::vector<double>& top, const Axis& x, const Axis& y) {
  std::string edge, back;
  for (size_t i = 0; i < s.x.size(); ++i) {
    const size_t last = s.x.size() - 1 - i;
    edge += fmt::format("{}{},{}", i == 0 ? "" : " ", FormatCoordinate(x(s.x[i])),
                        FormatCoordinate(y(top[i])));
    back += fmt::format(" {},{}", FormatCoordinate(x(s.x[last])), FormatCoordinate(y(below[last])));
  }
  return fmt::format(
      "<polygon class=\"area f{}\" points=\"{}{}\"/>"
      "<polyline class=\"edge\" data-name=\"{}\" data-stacked=\"1\" points=\"{}\"/>",
      s.color, edge, back, EscapeHtml(s.name), edge);
}

// Returns no legend if the title of the chart is the only name.
std::string DrawLegend(const ChartOptions& options, const std::vector<Series>& series) {
  const bool any = std::any_of(series.begin(), series.end(), [&](const Series& s) {
    return !s.faint && s.name != options.title;
  });
  if (!any) return "";
  std::string html = "<div class=\"legend\">";
  for (const Series& s : series) {
    if (s.faint) continue;
    html += fmt::format("<span><i class=\"b{}\"></i>{}</span>", s.color, EscapeHtml(s.name));
  }
  return html + "</div>";
}

}  // namespace

std::vector<double> Ticks(double low, double high, int count) {
  std::vector<double> ticks;
  const double rough = (high - low) / count;
  if (!(rough > 0) || !std::isfinite(rough)) return {low};
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double digit : {5.0, 2.0, 1.0}) {
    if (digit * power >= rough) step = digit * power;
  }
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i)
    ticks.push_back(i == 0 ? 0 : i * step);
  return ticks;
}

std::string FormatShort(double value) {
  const double size = std::abs(value);
  if (size >= 1e12) return fmt::format("{:.3g}", value);
  if (size >= 1e9) return fmt::format("{:.4g}G", value * 1e-9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value * 1e-6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value * 1e-3);
  return fmt::format("{:.6g}", value);
}

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::vector<double> Smooth(const std::vector<double>& values) {
  const auto size = static_cast<int64_t>(values.size());
  std::vector<double> smooth = values;
  for (int64_t i = 0; i < size; ++i) {
    if (!std::isfinite(values[i])) continue;
    const int64_t reach = size / 100;
    double sum = 0, count = 0;
    for (int64_t k = std::max<int64_t>(0, i - reach); k <= std::min(size - 1, i + reach); ++k) {
      if (!std::isfinite(values[k])) continue;
      sum += values[k];
      ++count;
    }
    smooth[i] = sum / count;
  }
  return smooth;
}

std::string DrawChart(const ChartOptions& options, const std::vector<Series>& series) {
  Range xs, ys;
  std::vector<double> top(series.empty() ? 0 : series[0].x.size());
  for (const Series& s : series) {
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!std::isfinite(s.y[i])) continue;
      xs.Add(s.x[i]);
      ys.Add(options.stacked ? top[i] + s.y[i] : s.y[i]);
      if (options.stacked) top[i] += s.y[i];
    }
  }
  std::string html = fmt::format(
      "<figure id=\"{}\"><figcaption>{}{}</figcaption>", options.id, EscapeHtml(options.title),
      options.unit.empty() ? "" : fmt::format(" <small>{}</small>", EscapeHtml(options.unit)));
  if (xs.empty() || ys.empty()) return html + "<p class=\"none\">no data yet</p></figure>\n";
  const Axis x = MakeX(xs), y = MakeY(options, ys, IsLog(options, series, ys));
  html += DrawLegend(options, series);
  html += fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" data-x=\"{:.9g} {:.9g} "
      "{:.0f} {:.0f}\" data-y=\"{:.9g} {:.9g} {:.0f} {:.0f} {}\">",
      kWidth, kHeight, EscapeHtml(options.title), x.low, x.high, x.from, x.to, y.low, y.high,
      y.from, y.to, y.is_log ? 1 : 0);
  html += DrawAxes(x, y);
  std::vector<double> below(top.size());
  std::fill(top.begin(), top.end(), 0);
  for (const Series& s : series) {
    if (!options.stacked) {
      html += DrawLine(s, x, y);
      continue;
    }
    for (size_t i = 0; i < s.x.size(); ++i) top[i] += std::isfinite(s.y[i]) ? s.y[i] : 0;
    html += DrawArea(s, below, top, x, y);
    below = top;
  }
  return html + "</svg></figure>\n";
}

}  // namespace carole::monitoring
