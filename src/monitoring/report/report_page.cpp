#include "src/monitoring/report/report_page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "src/core/error.h"
#include "src/monitoring/progress/work_progress.h"
#include "src/monitoring/report/chart.h"
#include "src/monitoring/report/confusion.h"
#include "src/monitoring/report/report_style.h"

namespace carole::monitoring {
namespace {

constexpr std::string_view kDataBegins = "<script type=\"application/json\" id=\"history\">";
constexpr std::string_view kDataEnds = "</script>";

std::vector<double> Values(const History& history, double (*value)(const Row&)) {
  std::vector<double> values;
  for (const Row& row : history.rows()) values.push_back(value(row));
  return values;
}

std::vector<double> Steps(const History& history) {
  return Values(history, [](const Row& row) { return row[kStep]; });
}

template <Column column>
std::vector<double> Means(const History& history) {
  return Values(history, [](const Row& row) { return Mean(row, column); });
}

constexpr char kSmoothed[] = "smoothed; faint line: measured values";

// Adds a smoothed line, and the measured values as a faint line behind it.
void AddSmooth(const std::string& name, int color, const std::vector<double>& x,
               const std::vector<double>& y, std::vector<Series>& series) {
  series.push_back({.name = name, .x = x, .y = y, .faint = true, .color = color});
  series.push_back({.name = name, .x = x, .y = Smooth(y), .color = color});
}

std::string DrawLoss(const History& history) {
  const auto x = Steps(history);
  std::vector<Series> series;
  AddSmooth("total", 0, x, Means<kTotalLoss>(history), series);
  AddSmooth("cross entropy", 1, x, Means<kDataLoss>(history), series);
  if (history.Total(kRegularization) > 0) {
    series.push_back(
        {.name = "regularization", .x = x, .y = Means<kRegularization>(history), .color = 2});
  }
  Series evaluation{.name = "evaluation, cross entropy", .markers = true, .color = 3};
  for (const EvaluationPoint& p : history.evaluations()) {
    evaluation.x.push_back(static_cast<double>(p.step));
    evaluation.y.push_back(p.loss);
  }
  if (!evaluation.x.empty()) series.push_back(evaluation);
  return DrawChart({.id = "loss", .title = "loss", .unit = kSmoothed}, series);
}

std::string DrawAccuracy(const History& history) {
  std::vector<Series> series;
  AddSmooth("training batches", 0, Steps(history), Means<kAccuracy>(history), series);
  Series top1{.name = "evaluation", .markers = true, .color = 1};
  Series top5{.name = "evaluation, top 5", .markers = true, .color = 2};
  for (const EvaluationPoint& p : history.evaluations()) {
    for (Series* s : {&top1, &top5}) s->x.push_back(static_cast<double>(p.step));
    top1.y.push_back(p.accuracy);
    top5.y.push_back(p.recall_5);
  }
  if (!top1.x.empty()) series.insert(series.end(), {top1, top5});
  return DrawChart(
      {.id = "accuracy", .title = "accuracy", .unit = kSmoothed, .from_zero = true, .y_max = 1},
      series);
}

std::string DrawRate(const History& history) {
  const std::string title = "learning rate";
  return DrawChart({.id = "rate", .title = title},
                   {{.name = title, .x = Steps(history), .y = Means<kLearningRate>(history)}});
}

std::string DrawNorm(const History& history) {
  const std::string title = "gradient norm";
  std::vector<Series> series;
  AddSmooth(title, 0, Steps(history), Means<kGradientNorm>(history), series);
  return DrawChart({.id = "norm", .title = title, .unit = kSmoothed}, series);
}

// Smooths the times per image, not the rates: a mean of rates would be wrong.
std::string DrawThroughput(const History& history) {
  const std::string title = "throughput";
  std::vector<double> values = Smooth(Values(
      history, [](const Row& row) { return row[kSeconds] / std::max<double>(row[kImages], 1); }));
  for (double& value : values) value = 1 / value;
  return DrawChart({.id = "throughput",
                    .title = title,
                    .unit = "images/s, all ranks; smoothed",
                    .from_zero = true},
                   {{.name = title, .x = Steps(history), .y = values}});
}

// Adds to `ms` the time of something that happens only now and then, such as saving. Its seconds
// are distributed evenly over the steps since it happened last.
void SpreadOverSteps(const History& history, Column seconds, std::vector<double>& ms) {
  double steps = 0;
  size_t begin = 0;
  for (size_t i = 0; i < ms.size(); ++i) {
    const Row& row = history.rows()[i];
    steps += row[kSteps];
    if (row[seconds] == 0) continue;
    for (; begin <= i; ++begin) ms[begin] += 1e3 * row[seconds] / steps;
    steps = 0;
  }
}

std::vector<double> EvaluationAndSaving(const History& history) {
  std::vector<double> ms(history.rows().size());
  SpreadOverSteps(history, kEvalSeconds, ms);
  SpreadOverSteps(history, kSaveSeconds, ms);
  return ms;
}

std::string DrawStepTime(const History& history) {
  struct Part {
    const char* name;
    std::vector<double> ms;
  };
  const Part parts[] = {{"forward", Means<kForwardMs>(history)},
                        {"backward", Means<kBackwardMs>(history)},
                        {"waiting for all-reduce", Means<kExposedMs>(history)},
                        {"optimizer", Means<kOptimizerMs>(history)},
                        {"waiting for input", Means<kInputMs>(history)},
                        {"evaluation and saving", EvaluationAndSaving(history)}};
  std::vector<Series> series;
  int color = 0;
  for (const Part& part : parts) {
    const bool any = std::any_of(part.ms.begin(), part.ms.end(), [](double ms) { return ms > 0; });
    if (any)
      series.push_back({.name = part.name, .x = Steps(history), .y = part.ms, .color = color});
    ++color;
  }
  return DrawChart({.id = "time", .title = "time per step", .unit = "ms, rank 0", .stacked = true},
                   series);
}

std::string LossText(double loss) {
  return std::abs(loss) < 1e4 ? fmt::format("{:.4f}", loss) : fmt::format("{:.4g}", loss);
}

std::string DrawTiles(const ReportInfo& info, const History& history) {
  std::string html = "<div class=\"tiles\">";
  const auto tile = [&](const std::string& value, const std::string& what) {
    html += fmt::format("<div><b>{}</b><span>{}</span></div>", value, what);
  };
  tile(info.max_steps > 0 ? fmt::format("{} / {}", info.step, info.max_steps)
                          : std::to_string(info.step),
       fmt::format("steps, {:.2f} epochs", info.epochs));
  if (!history.rows().empty()) {
    const Row& last = history.rows().back();
    tile(LossText(Mean(last, kTotalLoss)),
         last[kSteps] == 1 ? "last loss" : fmt::format("loss, mean of {} steps", last[kSteps]));
  }
  const auto& evaluations = history.evaluations();
  if (!evaluations.empty()) {
    const auto best =
        std::max_element(evaluations.begin(), evaluations.end(),
                         [](const auto& a, const auto& b) { return a.accuracy < b.accuracy; });
    tile(fmt::format("{:.4f}", evaluations.back().accuracy), "last evaluation, top 1");
    tile(LossText(evaluations.back().loss), "last evaluation, cross entropy");
    tile(fmt::format("{:.4f}", best->accuracy),
         fmt::format("best evaluation, step {}", best->step));
  }
  const double seconds = history.Total(kSeconds);
  if (seconds > 0)
    tile(FormatShort(std::round(history.Total(kImages) / seconds)), "images/s, mean");
  tile(FormatTime(seconds + history.Total(kEvalSeconds) + history.Total(kSaveSeconds)),
       "time for training, evaluation and saving");
  if (info.unsaved) {
    tile(fmt::format("{} steps", info.unsaved->steps),
         fmt::format("{}: lost if the job dies before the next save",
                     FormatTime(info.unsaved->seconds)));
  }
  return html + "</div>\n";
}

// Escapes the text and keeps flags whole at line breaks: browsers would break a line after "--".
std::string MarkFlags(const std::string& text) {
  std::string html;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ' ');) {
    const bool is_flag = word.starts_with("--");
    html += fmt::format("{}{}{}{}", html.empty() ? "" : " ", is_flag ? "<span>" : "",
                        EscapeHtml(word), is_flag ? "</span>" : "");
  }
  return html;
}

std::string DrawSettings(const ReportInfo& info) {
  std::string html = "<figure id=\"settings\"><figcaption>settings</figcaption><table>";
  for (const auto& [name, value] : info.settings)
    html += fmt::format("<tr><td>{}</td><td>{}</td></tr>", EscapeHtml(name), MarkFlags(value));
  return html + "</table></figure>\n";
}

// Draws the ledger of epochs as a table.
std::string DrawLedger(const train::EpochHistory& ledger) {
  if (ledger.empty()) return "";
  std::string html =
      "<figure id=\"ledger\"><figcaption>records of each "
      "epoch</figcaption><table><tr><th>epoch</th>"
      "<th>seen</th><th>skipped</th><th>duplicated</th><th>missing</th><th>hash</th></tr>";
  const auto row = [&html](const std::string& name, int64_t seen, int64_t skipped,
                           int64_t duplicated, const std::string& missing,
                           const std::string& hash) {
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                    name, seen, skipped, duplicated, missing, hash);
  };
  const auto add = [&row](const train::EpochRecords& epoch) {
    row(std::to_string(epoch.epoch), epoch.counts.seen, epoch.counts.num_skipped(),
        epoch.duplicated,
        epoch.is_complete ? std::to_string(epoch.missing)
                          : fmt::format("{} of {} records", epoch.visits(), epoch.records),
        fmt::format("{:016x}", epoch.counts.hash));
  };
  for (const train::EpochRecords& epoch : ledger.epochs) add(epoch);
  if (ledger.current) add(*ledger.current);
  const train::EpochHistory::Total& total = ledger.total;
  row(fmt::format("all {}", total.epochs), total.seen, total.skipped, total.duplicated,
      std::to_string(total.missing), "");
  return html + "</table></figure>\n";
}

// Returns ", 2026-11-27 06:52:01 +0000" in a <time> element that the script reads.
std::string FormatUpdateTime(const ReportInfo& info) {
  return fmt::format(", <time{} datetime=\"{:%Y-%m-%dT%H:%M:%SZ}\">{:%Y-%m-%d %H:%M:%S %z}</time>",
                     info.is_running ? " class=\"running\"" : "", fmt::gmtime(info.updated),
                     fmt::localtime(info.updated));
}

// Returns the start of a page. `more` is HTML for the head, `updated` HTML after the status.
std::string BeginPage(const std::string& title, const std::string& status, const std::string& more,
                      const std::string& updated) {
  const std::string name = EscapeHtml(title), state = EscapeHtml(status);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<link rel=\"icon\" href=\"data:,\">{}<title>{}: {}</title><style>{}</style></head>\n<body>"
      "<header><h1>{}</h1><p>{}{}</p></header>\n",
      more, name, state, kReportStyle, name, state, updated);
}

}  // namespace

std::string MakeReport(const ReportInfo& info, const History& history) {
  std::string html =
      BeginPage(info.title, info.status,
                info.is_running ? "<meta http-equiv=\"refresh\" content=\"30\">" : "",
                FormatUpdateTime(info));
  html += DrawTiles(info, history);
  html += "<div class=\"charts\">\n";
  html += DrawLoss(history) + DrawAccuracy(history);
  html += DrawRate(history) + DrawNorm(history);
  html += DrawThroughput(history) + DrawStepTime(history);
  html += DrawConfusion(history.confusion(), info.class_names);
  html += DrawLedger(info.ledger) + DrawSettings(info) + "</div>\n";
  html += fmt::format("{}{}{}\n<script>{}</script>\n</body></html>\n", kDataBegins,
                      history.ToJson(), kDataEnds, kReportScript);
  return html;
}

std::string MakeConfusionPage(const ConfusionPageInfo& info, const train::Metrics& metrics) {
  const std::string status =
      fmt::format("top 1 {:.4f}, top 5 {:.4f}, cross entropy {:.4f}, {} images", metrics.accuracy(),
                  metrics.recall_5(), metrics.loss(), metrics.samples());
  return BeginPage(info.title, status, "", "") +
         DrawConfusion(Confusion::Of(metrics, info.step), info.class_names) + "</body></html>\n";
}

History ReadHistoryFromReport(std::string_view page) {
  const size_t begin = page.find(kDataBegins);
  if (begin == std::string_view::npos) throw DataError("[watch] report: has no embedded history");
  page.remove_prefix(begin + kDataBegins.size());
  return History::FromJson(page.substr(0, page.find(kDataEnds)));
}

}  // namespace carole::monitoring
