// Tests what is known of a device's steps, on a device whose clock differs from the host's.
#include "src/train/timing/device_timeline.h"

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/walled_backend.h"

namespace carole::train {
namespace {

using carole::testing::WalledBackend;
using ::testing::ElementsAre;
using Clock = std::chrono::steady_clock;

// A device whose clock is 1000 s late.
class LateClock : public WalledBackend {
 public:
  LateClock() : WalledBackend(MakeReferenceBackend(1)) {}
  void WriteTime(void* /*stream*/, uint64_t* to) const override {
    stream()->Add([to] {
      const auto time = Clock::now() - std::chrono::seconds(1000);
      *to = static_cast<uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
    });
  }
};

class DeviceTimelineTest : public ::testing::Test {
 protected:
  // Runs a step, and returns its spans.
  std::vector<DeviceSpan> Run(const std::function<void()>& enqueue) {
    timeline_.BeginStep();
    enqueue();
    timeline_.BeginDownload(*download_);
    return timeline_.Take(*download_);
  }
  void Span(const char* what, int32_t bucket = 0) {
    timeline_.Begin(what, bucket, 8);
    device_.stream()->Add([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    timeline_.End(what, bucket);
  }
  static std::vector<std::string> Names(const std::vector<DeviceSpan>& spans) {
    std::vector<std::string> names;
    for (const DeviceSpan& span : spans) names.push_back(span.what + std::to_string(span.bucket));
    return names;
  }

  LateClock device_;
  DeviceTimeline timeline_{device_};
  std::unique_ptr<Download> download_ = timeline_.MakeDownload();
};

TEST_F(DeviceTimelineTest, ConvertsTimesToTheClockOfTheHost) {
  for (int step = 0; step < 5; ++step) {
    const Clock::time_point before = Clock::now();
    const std::vector<DeviceSpan> spans = Run([&] { Span("sum", 3); });
    ASSERT_THAT(Names(spans), ElementsAre("sum3"));
    EXPECT_EQ(spans[0].bytes, 8);
    EXPECT_GE(spans[0].start, before);
    EXPECT_GE(spans[0].end - spans[0].start, std::chrono::milliseconds(2));
    EXPECT_LE(spans[0].end, Clock::now());
  }
}

TEST_F(DeviceTimelineTest, LeavesOutWhatAStepHasNotRun) {
  const auto both = [&] {
    Span("sum", 0);
    Span("sum", 1);
  };
  EXPECT_THAT(Names(Run(both)), ElementsAre("sum0", "sum1"));
  EXPECT_THAT(Names(Run([&] { Span("sum", 1); })), ElementsAre("sum1"));
  EXPECT_THAT(Names(Run(both)), ElementsAre("sum0", "sum1"));
  EXPECT_THAT(Names(Run([] {})), ElementsAre());
}

TEST_F(DeviceTimelineTest, TellsSpansOfOneNameApart) {
  const std::vector<DeviceSpan> spans = Run([&] {
    Span("batch norm");
    Span("batch norm");
  });
  ASSERT_EQ(spans.size(), 2);
  EXPECT_LE(spans[0].end, spans[1].start);
}

TEST_F(DeviceTimelineTest, SeesReplays) {
  timeline_.BeginStep();
  const auto captured = device_.Capture([&] { Span("sum"); });
  Clock::time_point last;
  for (int step = 0; step < 3; ++step) {
    const std::vector<DeviceSpan> spans = Run([&] { captured->Replay(); });
    ASSERT_THAT(Names(spans), ElementsAre("sum0"));
    EXPECT_GT(spans[0].start, last);
    last = spans[0].end;
  }
}

// The last micro-batch is captured in a step whose first one is replayed.
TEST_F(DeviceTimelineTest, TellsTheLastPartFromAReplay) {
  timeline_.BeginStep();
  const auto first = device_.Capture([&] { Span("batch norm"); });
  timeline_.BeginStep();
  timeline_.BeginLastPart();
  const auto last = device_.Capture([&] { Span("batch norm"); });
  const std::vector<DeviceSpan> spans = Run([&] {
    first->Replay();
    last->Replay();
  });
  ASSERT_EQ(spans.size(), 2);
  EXPECT_LE(spans[0].end, spans[1].start);
}

TEST_F(DeviceTimelineTest, IgnoresWhatDoesNotFit) {
  const std::vector<DeviceSpan> spans = Run([&] {
    for (size_t i = 0; i < DeviceTimeline::kMaxSpans + 3; ++i) {
      timeline_.Begin("batch norm");
      timeline_.End("batch norm");
    }
  });
  EXPECT_EQ(spans.size(), DeviceTimeline::kMaxSpans);
}

}  // namespace
}  // namespace carole::train
