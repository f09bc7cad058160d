// Tests charts and the page that contains them. tests/interop opens whole pages in Chromium.
#include "src/monitoring/report/report.h"

#include <gmock/gmock.h>

#include <cmath>
#include <regex>
#include <string>

#include "src/core/error.h"
#include "src/monitoring/report/chart.h"
#include "src/monitoring/report/confusion.h"
#include "src/monitoring/report/report_page.h"
#include "tests/support/temporary_folder.h"

namespace carole::monitoring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Chart, TicksAreRound) {
  EXPECT_THAT(Ticks(0, 1, 5), ElementsAre(0, 0.2, 0.4, 0.60000000000000009, 0.8, 1));
  EXPECT_THAT(Ticks(130, 1270, 6), ElementsAre(200, 400, 600, 800, 1000, 1200));
  EXPECT_THAT(Ticks(-2.5, 2.5, 5), ElementsAre(-2, -1, 0, 1, 2));
  EXPECT_THAT(Ticks(3, 3, 5), ElementsAre(3));
}

TEST(Confusion, NamesAreUtf8) {
  const std::vector<std::string> names{"f\xc3\xbc", "\xff"};
  EXPECT_EQ(LabelName(names, 0), names[0]);
  EXPECT_EQ(LabelName(names, 1), "\xef\xbf\xbd");
  EXPECT_EQ(LabelName(names, 2), "2");
}

TEST(Chart, FormatsShortNumbers) {
  EXPECT_EQ(FormatShort(0), "0");
  EXPECT_EQ(FormatShort(0.00125), "0.00125");
  EXPECT_EQ(FormatShort(9500), "9500");
  EXPECT_EQ(FormatShort(12500), "12.5k");
  EXPECT_EQ(FormatShort(2.5e6), "2.5M");
  EXPECT_EQ(FormatShort(-3e9), "-3G");
  EXPECT_EQ(FormatShort(1e14), "1e+14");
}

TEST(Chart, SmoothsUpToTheEnds) {
  std::vector<double> values(200);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  values[100] = NAN;
  const std::vector<double> smooth = Smooth(values);
  EXPECT_EQ(smooth[0], 1);  // mean of 0, 1, 2
  EXPECT_EQ(smooth[50], 50);
  EXPECT_TRUE(std::isnan(smooth[100]));
  EXPECT_EQ(smooth[101], (99 + 101 + 102 + 103) / 4.0);
  EXPECT_EQ(smooth[199], 198);
}

// A loss of about 1e-3 on an axis up to 8, and a step up to a million.
TEST(Chart, ValuesCanBeReadBackFromCoordinates) {
  const std::string html = DrawChart({.id = "i", .title = "t", .from_zero = true, .y_max = 8},
                                     {{.name = "a", .x = {0, 654321, 1e6}, .y = {8, 0.00169, 0}}});
  std::smatch point;
  ASSERT_TRUE(std::regex_search(html, point, std::regex("points=\"[^ ]* ([0-9.]+),([0-9.]+) ")));
  EXPECT_EQ(std::round((std::stod(point[1]) - 52) / 576 * 1e6), 654321);
  EXPECT_NEAR((224 - std::stod(point[2])) / 216 * 8, 0.00169, 2e-6);
}

TEST(Chart, StepTicksAreIntegers) {
  const std::string html =
      DrawChart({.id = "i", .title = "t"}, {{.name = "a", .x = {1, 2, 3}, .y = {1, 2, 3}}});
  EXPECT_THAT(html, HasSubstr("y=\"241\" text-anchor=\"middle\">2</text>"));
  EXPECT_THAT(html, Not(HasSubstr("text-anchor=\"middle\">1.5</text>")));
}

TEST(Chart, DrawsValuesWhereTheyBelong) {
  const std::string html = DrawChart({.id = "i", .title = "t", .from_zero = true, .y_max = 1},
                                     {{.name = "a<b", .x = {0, 5, 10}, .y = {0, 0.5, 1}}});
  EXPECT_THAT(html, HasSubstr("points=\"52,224 340,116 628,8\""));
  EXPECT_THAT(html, HasSubstr("a&lt;b"));
  EXPECT_THAT(html, Not(HasSubstr("a<b")));
}

TEST(Chart, BreaksLinesAtMissingValues) {
  const std::string html =
      DrawChart({.id = "i", .title = "t"}, {{.name = "a", .x = {1, 2, 3, 4}, .y = {1, NAN, 2, 3}}});
  EXPECT_EQ(std::count(html.begin(), html.end(), '|'), 0);
  size_t lines = 0;
  for (size_t at = 0; (at = html.find("<polyline", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 2U);
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(Chart, CopesWithNoValuesOneValueAndEqualValues) {
  EXPECT_THAT(DrawChart({.id = "i", .title = "t"}, {}), HasSubstr("no data yet"));
  EXPECT_THAT(DrawChart({.id = "i", .title = "t"}, {{.name = "a", .x = {1}, .y = {NAN}}}),
              HasSubstr("no data yet"));
  for (double value : {0.0, 3.0, -2.0, 1e-30}) {
    for (const auto& x : {std::vector<double>{7}, std::vector<double>{7, 8}}) {
      const std::string html =
          DrawChart({.id = "i", .title = "t"},
                    {{.name = "a", .x = x, .y = std::vector<double>(x.size(), value)}});
      EXPECT_THAT(html, HasSubstr("points=\"52,")) << value;
      EXPECT_THAT(html, Not(HasSubstr("nan")));
      EXPECT_THAT(html, Not(HasSubstr("inf")));
    }
  }
}

TEST(Chart, WideRangesAreLogarithmic) {
  const std::string html =
      DrawChart({.id = "i", .title = "t"}, {{.name = "a", .x = {0, 1, 2}, .y = {1e-4, 1e-2, 1}}});
  EXPECT_THAT(html, HasSubstr("340,116 "));
  for (const char* tick : {">0.0001<", ">0.001<", ">0.1<", ">1<"})
    EXPECT_THAT(html, HasSubstr(tick));
}

TEST(Report, EmbedsItsHistory) {
  History history;
  Row row{};
  row[kSteps] = row[kSeconds] = 1;
  for (int step = 1; step <= 5; ++step) {
    row[kStep] = step;
    row[kTotalLoss] = 1.0 / step;
    history.AddStep(row);
  }
  history.AddEvaluation({.step = 5, .accuracy = 0.9, .recall_5 = 1, .loss = 0.3125});
  history.SetConfusion({.step = 5, .num_classes = 2, .counts = {{0, 5}, {1, 1}, {3, 4}}});
  const std::string page = MakeReport({.title = "net & <set>",
                                       .status = "running",
                                       .is_running = true,
                                       .updated = 1'000'000'000,
                                       .settings = {{"flags", "--a=\"<b>\""}},
                                       .class_names = {"cat", "<dog>"}},
                                      history);
  EXPECT_EQ(ReadHistoryFromReport(page).ToJson(), history.ToJson());
  EXPECT_THAT(page, HasSubstr("net &amp; &lt;set&gt;"));
  EXPECT_THAT(page, HasSubstr("--a=&quot;&lt;b&gt;&quot;"));
  EXPECT_THAT(page, HasSubstr("cat predicted as &lt;dog&gt;: 1"));
  EXPECT_THAT(page, HasSubstr("<b>0.3125</b><span>last evaluation, cross entropy"));
  EXPECT_THAT(page, HasSubstr("data-name=\"evaluation, cross entropy\""));
  EXPECT_THAT(page, HasSubstr("<b>0.2000</b><span>last loss"));
  EXPECT_THAT(page, HasSubstr("<time class=\"running\" datetime=\"2001-09-09T01:46:40Z\">"));
  EXPECT_THAT(page, Not(HasSubstr("://")));
  EXPECT_THROW(ReadHistoryFromReport("<html></html>"), DataError);
}

// Rows alternate between 1000 and 53 images per second; the true mean is 100.
TEST(Report, ThroughputAveragesTimesNotRates) {
  constexpr int kRows = 300, kEdge = 3;
  History history;
  for (int step = 1; step <= kRows; ++step) {
    Row row{};
    row[kStep] = step;
    row[kSteps] = 1;
    row[kImages] = 100;
    row[kSeconds] = step % 2 == 0 && step > kEdge && step <= kRows - kEdge ? 0.1 : 1.9;
    history.AddStep(row);
  }
  const std::string page = MakeReport({}, history);
  std::smatch axis;
  ASSERT_TRUE(std::regex_search(
      page, axis,
      std::regex("id=\"throughput\"[^>]*>.*?aria-label=\"throughput\"[^>]*data-y=\"0 "
                 "([0-9.]+) ")));
  EXPECT_LT(std::stod(axis[1]), 200);
}

TEST(Report, ListsConfusedPairsIfThereAreManyClasses) {
  Confusion confusion{.step = 1, .num_classes = kMaxDrawnClasses + 1};
  confusion.counts[2 * confusion.num_classes + 7] = 9;
  confusion.counts[2 * confusion.num_classes + 2] = 30;
  const std::string html = DrawConfusion(confusion, {"a", "b", "c"});
  EXPECT_THAT(html, HasSubstr("<td>c</td><td>7</td><td>9</td><td>39</td>"));
  EXPECT_THAT(html, Not(HasSubstr("<svg")));
  EXPECT_THAT(html, HasSubstr("most frequent confusions"));
}

TEST(Report, ShortensLongClassNames) {
  const std::string name = "a-très-long-name-of-a-class";
  const std::string html = DrawConfusion(
      {.step = 1, .num_classes = 2, .counts = {{0, 1}, {1, 2}, {2, 3}, {3, 4}}}, {name, "short"});
  EXPECT_THAT(html, HasSubstr(">a-très-long-name…<title>" + name + "</title></text>"));
  EXPECT_THAT(html, HasSubstr(">short</text>"));
}

TEST(Report, ShowsTheLedgerAndWhatALossWouldCost) {
  ReportInfo info{.unsaved = train::UnsavedWork{.steps = 120, .seconds = 65}};
  info.ledger.Add({.epoch = 0,
                   .records = 300,
                   .counts = {.seen = 297, .skipped = {2, 0, 1}, .hash = 0xABC},
                   .duplicated = 4,
                   .missing = 5,
                   .is_complete = true});
  info.ledger.current = {.epoch = 1, .records = 300, .counts = {.seen = 64}};
  const std::string page = MakeReport(info, {});
  EXPECT_THAT(page, HasSubstr("<tr><td>0</td><td>297</td><td>3</td><td>4</td><td>5</td>"
                              "<td>0000000000000abc</td></tr>"));
  EXPECT_THAT(page, HasSubstr("<tr><td>1</td><td>64</td><td>0</td><td>0</td>"
                              "<td>64 of 300 records</td>"));
  EXPECT_THAT(page, HasSubstr("<tr><td>all 1</td><td>297</td>"));
  EXPECT_THAT(page, HasSubstr("<b>120 steps</b><span>0:01:05: lost if the job dies"));
  const std::string empty = MakeReport({}, {});
  EXPECT_THAT(empty, Not(HasSubstr("id=\"ledger\"")));
  EXPECT_THAT(empty, Not(HasSubstr("lost if")));
}

TEST(Report, ShowsTheLastSummaryOfStragglers) {
  const TemporaryFolder folder;
  Report report({.folder = folder.path(), .info = {.settings = {{"flags", "--a=1"}}}});
  report.OnTrainBegin({});
  report.OnStragglers("rank 1 has delayed");
  report.OnDeviceMemory("rank 0: 1.5 of 80.0 GiB");
  report.OnStragglers("rank 2 has delayed");
  report.OnTrainEnd({}, true);
  const std::string page = ReadText(folder / "report.html");
  EXPECT_THAT(page, HasSubstr("<tr><td>stragglers</td><td>rank 2 has delayed</td></tr>"));
  EXPECT_THAT(page, HasSubstr("<tr><td>device memory</td><td>rank 0: 1.5 of 80.0 GiB</td></tr>"));
  EXPECT_THAT(page, Not(HasSubstr("rank 1")));
}

}  // namespace
}  // namespace carole::monitoring
