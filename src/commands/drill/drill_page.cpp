#include "src/commands/drill/drill_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/monitoring/report/chart.h"
#include "src/monitoring/report/report_style.h"

namespace carole::commands {
namespace {

using monitoring::EscapeHtml;

constexpr char kOwnStyle[] =
    ".pass { color: var(--c2); } .fail { color: var(--c4); font-weight: 600; }\n"
    "pre { overflow-x: auto; font-size: 12px; }\n";

std::string Verdict(const DrillResult& result) { return result.problems.empty() ? "pass" : "FAIL"; }

std::string JoinProblems(const DrillResult& result) {
  std::string text;
  for (const std::string& problem : result.problems) text += (text.empty() ? "" : "; ") + problem;
  return text;
}

std::string Tile(const std::string& value, const std::string& name) {
  return fmt::format("<div><b>{}</b><span>{}</span></div>\n", EscapeHtml(value), EscapeHtml(name));
}

std::string Row(const DrillResult& result) {
  const bool is_good = result.problems.empty();
  const Injection& injection = result.drill.injection;
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td><td>{:.1f}</td>"
      "<td class=\"{}\">{}</td></tr>\n",
      EscapeHtml(result.drill.fault), EscapeHtml(injection.point), injection.rank,
      EscapeHtml(result.drill.expected), EscapeHtml(result.seen),
      is_good ? "" : "<br>" + EscapeHtml(JoinProblems(result)), result.seconds,
      is_good ? "pass" : "fail", Verdict(result));
}

}  // namespace

std::string DrillTableHead() {
  return fmt::format("{:<18} {:<11} {:>4} {:>8}  {:<7} {}\n", "fault", "phase", "rank", "seconds",
                     "result", "seen");
}

std::string DrillTableRow(const DrillResult& result) {
  const Injection& injection = result.drill.injection;
  std::string text =
      fmt::format("{:<18} {:<11} {:>4} {:>8.1f}  {:<7} {}\n", result.drill.fault, injection.point,
                  injection.rank, result.seconds, Verdict(result), result.seen);
  if (result.problems.empty()) return text;
  text += fmt::format("  expected: {}\n", result.drill.expected);
  for (const std::string& problem : result.problems)
    text += fmt::format("  problem: {}\n", problem);
  return text;
}

std::string MakeDrillPage(const std::string& job, const std::vector<DrillResult>& results) {
  const auto failed = std::ranges::count_if(
      results, [](const DrillResult& result) { return !result.problems.empty(); });
  double seconds = 0;
  for (const DrillResult& result : results) seconds += result.seconds;
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>carole "
      "drill</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<style>{}{}</style></head>\n"
      "<body><header><h1>carole drill</h1><p>{}</p></header>\n<div class=\"tiles\">\n",
      monitoring::kReportStyle, kOwnStyle, EscapeHtml(job));
  page += Tile(std::to_string(results.size()), "cases") +
          Tile(std::to_string(static_cast<int64_t>(results.size()) - failed), "passed") +
          Tile(std::to_string(failed), "failed") + Tile(fmt::format("{:.0f} s", seconds), "time");
  page +=
      "</div>\n<figure><table id=\"cases\">\n<tr><th>fault</th><th>phase</th><th>rank</th>"
      "<th>expected</th><th>seen</th><th>seconds</th><th>result</th></tr>\n";
  for (const DrillResult& result : results) page += Row(result);
  page += "</table></figure>\n";
  for (const DrillResult& result : results) {
    if (result.problems.empty()) continue;
    page += fmt::format("<h2>{} in {}: end of the log</h2>\n<pre>{}</pre>\n",
                        EscapeHtml(result.drill.fault), EscapeHtml(result.drill.injection.point),
                        EscapeHtml(result.log));
  }
  return page + "</body></html>\n";
}

}  // namespace carole::commands
