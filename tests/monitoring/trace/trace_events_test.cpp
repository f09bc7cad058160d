#include "src/monitoring/trace/trace_events.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "src/core/error.h"
#include "src/monitoring/trace/trace.h"
#include "src/monitoring/trace/trace_json.h"

namespace carole::monitoring {
namespace {

using ::testing::ElementsAre;

TraceEvent EventAt(int64_t step, uint16_t name = 0) {
  const TraceEvent::Time start{std::chrono::microseconds(100 * step)};
  return {
      .start = start, .end = start + std::chrono::nanoseconds(2500), .step = step, .name = name};
}

std::vector<int64_t> Steps(const TraceEvents& all) {
  std::vector<int64_t> steps;
  for (const TraceEvent& e : all.events) steps.push_back(e.step);
  return steps;
}

TEST(TraceRing, KeepsTheNewestInOrder) {
  TraceRing ring(4);
  for (int step = 0; step < 3; ++step) ring.Add(EventAt(step));
  EXPECT_THAT(Steps(ring.Snapshot(0)), ElementsAre(0, 1, 2));
  for (int step = 3; step < 10; ++step) ring.Add(EventAt(step));
  EXPECT_THAT(Steps(ring.Snapshot(0)), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(Steps(ring.Snapshot(8)), ElementsAre(8, 9));
  EXPECT_EQ(ring.num_dropped(), 6);
}

TEST(TraceRing, GivesIdsToNames) {
  TraceRing ring(4);
  EXPECT_EQ(ring.NameId(""), 0);
  EXPECT_EQ(ring.NameId("a"), 1);
  EXPECT_EQ(ring.NameId("b"), 2);
  EXPECT_EQ(ring.NameId("a"), 1);
  EXPECT_THAT(ring.Snapshot(0).names, ElementsAre("", "a", "b"));
  for (int i = 0; i < 70000; ++i) ring.NameId("n" + std::to_string(i));
  EXPECT_EQ(ring.NameId("one too many"), 0);
}

TEST(TraceEvents, SerializeToBytesAndBack) {
  TraceRing ring(4);
  ring.Add(EventAt(7, ring.NameId("net/conv1")));
  const std::string bytes = Serialize(ring.Snapshot(0));
  const TraceEvents back = Deserialize(bytes);
  EXPECT_EQ(back.names, ring.Snapshot(0).names);
  ASSERT_EQ(back.events.size(), 1U);
  EXPECT_EQ(back.events[0].step, 7);
  for (size_t size = 0; size < bytes.size(); ++size) {
    if (size == bytes.size() - sizeof(TraceEvent)) continue;  // no events
    EXPECT_THROW(Deserialize(bytes.substr(0, size)), DataError) << size;
  }
  TraceEvents bad = back;
  bad.events[0].detail = 2;
  EXPECT_THROW(Deserialize(Serialize(bad)), DataError);
}

TEST(TraceJson, QuotesAndShiftsToTheClockOfRank0) {
  std::ostringstream out;
  TraceJson json(out, TraceEvent::Time{});
  TraceEvents all{.names = {"", "a \"b\"\n"}, .events = {EventAt(3, 1)}};
  all.events[0].kind = TraceKind::kPhase;
  json.AddRank({.rank = 2, .size = 4, .name = "rank 2 (h\\1)", .clock_offset = 0.001}, all);
  json.Close();
  const auto parsed = nlohmann::json::parse(out.str());
  EXPECT_EQ(parsed[0]["args"]["name"], "rank 2 (h\\1)");
  const auto& event = parsed.back();
  EXPECT_EQ(event["name"], "a \"b\"\n");
  EXPECT_EQ(event["pid"], 2);
  EXPECT_NEAR(event["ts"], 1300, 1e-6);
  EXPECT_NEAR(event["dur"], 2.5, 1e-6);
}

TEST(TraceJson, AStreamOfADeviceIsAThread) {
  std::ostringstream out;
  TraceJson json(out, TraceEvent::Time{});
  TraceEvents all{.names = {"", "step", "gradients"}, .events = {EventAt(3, 1), EventAt(3, 2)}};
  for (TraceEvent& event : all.events) event.kind = TraceKind::kDevice;
  all.events[1].bucket = 5;
  all.events[1].bytes = 5000;
  all.events[1].stream = 1;
  json.AddRank({.size = 2}, all);
  json.Close();
  std::map<int, std::string> threads;
  std::map<std::string, nlohmann::json> events;
  for (const auto& event : nlohmann::json::parse(out.str())) {
    if (event["name"] == "thread_name") threads[event["tid"]] = event["args"]["name"];
    if (event["ph"] == "X") events[event["name"]] = event;
  }
  EXPECT_EQ(threads[events["step"]["tid"]], "device");
  EXPECT_FALSE(events["step"]["args"].contains("bytes"));
  EXPECT_EQ(threads[events["gradients 5"]["tid"]], "device reductions 1");
  EXPECT_EQ(events["gradients 5"]["args"]["bytes"], 5000);
  EXPECT_NEAR(events["gradients 5"]["args"]["bus_GB_per_s"], 2, 1e-6) << "5000 bytes in 2.5 us";
}

TEST(TraceJson, BusBandwidthCountsTheTrafficOfARing) {
  using collectives::Operation;
  EXPECT_EQ(BusBandwidth(Operation::kAllReduce, 1000, 2, 4), 750);
  EXPECT_EQ(BusBandwidth(Operation::kBroadcast, 1000, 2, 4), 500);
  EXPECT_EQ(BusBandwidth(Operation::kBroadcast, 1000, 0, 4), 0);
}

}  // namespace
}  // namespace carole::monitoring
