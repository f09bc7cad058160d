// --trace with real ranks: one file has the events of all ranks on one clock.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using Json = nlohmann::json;

class TraceTest : public CliTest {
 protected:
  Json TrainAndRead(int ranks, const Words& more = {}) {
    Words words = TrainWords(train_dir_, {"--trace=" + trace_});
    words.insert(words.end(), more.begin(), more.end());
    RunToEnd(words, ranks);
    return Json::parse(ReadText(trace_));
  }

  const std::string trace_ = folder_ / "trace.json";
};

double Start(const Json& e) { return e["ts"]; }
double End(const Json& e) { return e["ts"].get<double>() + e["dur"].get<double>(); }

// Returns the complete events of a kind, of one rank or (rank < 0) of all.
std::vector<Json> OfKind(const Json& trace, const std::string& kind, int rank = -1) {
  std::vector<Json> found;
  for (const Json& e : trace) {
    if (e["ph"] == "X" && e["cat"] == kind && (rank < 0 || e["pid"] == rank)) found.push_back(e);
  }
  return found;
}

constexpr double kRounding = 0.0021;  // microseconds; times are rounded to nanoseconds

bool IsInside(const Json& inner, const Json& outer) {
  return Start(inner) >= Start(outer) - kRounding && End(inner) <= End(outer) + kRounding;
}

void ExpectEachInsideOne(const std::vector<Json>& inner, const std::vector<Json>& outer) {
  EXPECT_FALSE(inner.empty());
  for (const Json& e : inner) {
    EXPECT_TRUE(std::any_of(outer.begin(), outer.end(), [&](const Json& o) {
      return IsInside(e, o);
    })) << e;
  }
}

std::set<std::string> Names(const std::vector<Json>& events) {
  std::set<std::string> names;
  for (const Json& e : events) names.insert(e["name"]);
  return names;
}

// Expects that the events of each collective overlap on all ranks: no rank can leave it before the
// last rank has entered.
void ExpectCollectivesOverlap(const Json& trace, int ranks) {
  std::map<int64_t, std::vector<Json>> by_sequence;
  for (const Json& e : OfKind(trace, "collective")) by_sequence[e["args"]["sequence"]].push_back(e);
  EXPECT_GT(by_sequence.size(), 20U);
  for (const auto& [sequence, events] : by_sequence) {
    ASSERT_EQ(events.size(), static_cast<size_t>(ranks)) << events[0];
    double last_start = 0, first_end = 1e300;
    for (const Json& e : events) {
      last_start = std::max(last_start, Start(e));
      first_end = std::min(first_end, End(e));
      for (const char* key : {"operation", "algorithm", "bytes", "bucket"})
        EXPECT_EQ(e["args"][key], events[0]["args"][key]) << e;
      EXPECT_EQ(e["name"], events[0]["name"]);
    }
    EXPECT_LT(last_start, first_end) << events[0];
  }
}

TEST_F(TraceTest, AllRanksUseOneClock) {
  for (int ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    std::filesystem::remove_all(train_dir_);
    const Json trace = TrainAndRead(ranks, {"--eval_every=6", "--trace_kernels"});
    ExpectCollectivesOverlap(trace, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto steps = OfKind(trace, "step", rank);
      EXPECT_EQ(steps.size(), 12U);
      const auto phases = OfKind(trace, "phase", rank);
      EXPECT_EQ(Names(phases), (std::set<std::string>{"input", "forward", "backward", "reduction",
                                                      "optimizer", "evaluation", "saving"}));
      const auto kernels = OfKind(trace, "kernel", rank);
      ExpectEachInsideOne(kernels, phases);
      EXPECT_EQ(Names(kernels).count("LeNet/conv1"), 1U) << Json(Names(kernels));
      ExpectEachInsideOne(OfKind(trace, "wait", rank), OfKind(trace, "collective", rank));
    }
  }
}

TEST_F(TraceTest, HoldsTheReductionsOfGradients) {
  const Json trace = TrainAndRead(2);
  const auto steps = OfKind(trace, "step", 1);
  std::map<int64_t, int64_t> bytes;  // by step
  for (const Json& e : OfKind(trace, "collective", 1)) {
    if (!e["name"].get<std::string>().starts_with("gradients")) continue;
    bytes[e["args"]["step"]] += e["args"]["bytes"].get<int64_t>();
    EXPECT_EQ(e["args"]["algorithm"], "shared_memory");
    const double us = e["dur"].get<double>() - e["args"]["waited_ms"].get<double>() * 1e3;
    const double want = e["args"]["bytes"].get<double>() / us * 1e-3;  // 2 (p - 1) / p is 1
    if (us > 100) {  // shorter times are too much affected by rounding
      EXPECT_NEAR(e["args"]["bus_GB_per_s"], want, 0.02 * want + 0.0005) << e;
    }
    ExpectEachInsideOne({e}, steps);
  }
  ASSERT_EQ(bytes.size(), 12U);
  for (const auto& [step, sum] : bytes) {
    EXPECT_GE(sum, 3274634 * 4) << step;  // the weights of lenet, and padding between them
    EXPECT_LE(sum, 3274634 * 4 * 1.01) << step;
  }
}

TEST_F(TraceTest, HoldsTheStepsAskedFor) {
  const auto steps = [&](const std::string& flag) {
    std::filesystem::remove_all(train_dir_);
    std::set<int64_t> numbers;
    for (const Json& e : OfKind(TrainAndRead(1, {flag}), "step"))
      numbers.insert(e["args"]["step"].get<int64_t>());
    return numbers;
  };
  EXPECT_EQ(steps("--trace_steps=3:5"), (std::set<int64_t>{3, 4, 5}));
  EXPECT_EQ(steps("--trace_steps=2"), (std::set<int64_t>{10, 11}));
  for (const std::string bad : {"0", "5:3", "1:", "-1"}) {
    const Words words = TrainWords(train_dir_, {"--trace=" + trace_, "--trace_steps=" + bad});
    EXPECT_TRUE(FailsWith(Carole(words), 64, {"--trace_steps: got " + bad})) << bad;
  }
}

TEST_F(TraceTest, StoppedAndKilledRunsLeaveAValidFile) {
  const Words words = TrainWords(
      train_dir_, {"--trace=" + trace_, "--max_number_of_steps=100000", "--log_every_n_steps=1"});
  Subprocess stopped(CaroleWords(words, 2));
  ASSERT_TRUE(stopped.WaitUntil(
      [&] { return stopped.err().find("global step 3:") != std::string::npos; }, 60));
  stopped.Signal(SIGUSR1);
  EXPECT_EQ(stopped.Wait().exit_code, 75);
  EXPECT_GE(OfKind(Json::parse(ReadText(trace_)), "step", 1).size(), 3U);
  std::filesystem::remove(trace_);

  Subprocess killed(CaroleWords(words));
  ASSERT_TRUE(killed.WaitUntil([&] { return std::filesystem::exists(trace_); }, 60));
  killed.Signal(SIGKILL);
  killed.Wait();
  EXPECT_GE(OfKind(Json::parse(ReadText(trace_)), "step").size(), 10U);
}

TEST_F(TraceTest, WriteErrorsDoNotStopTheRun) {
  std::filesystem::create_directory(trace_);
  const ProcessResult run = RunToEnd(TrainWords(train_dir_, {"--trace=" + trace_}));
  EXPECT_THAT(run.err,
              ::testing::HasSubstr("cannot be written: Is a directory; the run continues"));
}

TEST_F(TraceTest, RefusesAMissingFolderBeforeTheRunStarts) {
  const std::string nowhere = folder_ / "no/such/folder/t.json";
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--trace=" + nowhere})), 74,
                        {"--trace " + nowhere, "make its folder first"}));
}

TEST_F(TraceTest, WarnsAboutStepsThatTheRunDidNotHave) {
  const ProcessResult run = RunToEnd(TrainWords(
      train_dir_, {"--trace=" + trace_, "--trace_steps=50:52", "--max_number_of_steps=2"}));
  EXPECT_THAT(run.err,
              ::testing::HasSubstr("--trace_steps=50:52: the run had none of these steps"));
  EXPECT_FALSE(std::filesystem::exists(trace_));
}

}  // namespace
}  // namespace carole::testing
