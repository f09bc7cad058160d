// The host cannot measure a sum on a device: to enqueue the sum and wait for it may take ten times
// as long as the sum itself. The replay of a captured step does not have this cost. So the device's
// clock is read right before and right after the sum, in its stream.
#include "src/train/timing/reduction_speed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "src/core/log.h"
#include "src/train/timing/device_timeline.h"

namespace carole::train {
namespace {

constexpr int kTimes = 6;                                  // the first one is slower
constexpr size_t kSmall = 4096, kLarge = size_t{4} << 20;  // values: 16 KiB, 16 MiB
constexpr collectives::Tag kTag{.what = "bucket measurement", .may_round = true};

// Returns the microseconds of the last sum on the rank that came last. Others have waited for it.
// A clock of low resolution may have missed the sum on some rank, which then has no span.
double ShortestOverRanks(collectives::Communicator& communicator,
                         const std::vector<DeviceSpan>& spans) {
  double time = std::numeric_limits<double>::infinity();
  if (!spans.empty())
    time = std::chrono::duration<double, std::micro>(spans[0].end - spans[0].start).count();
  return std::ranges::min(AllGather(communicator, time, kTag));
}

}  // namespace

ReductionSpeed MeasureReductions(const Backend& backend,
                                 collectives::FullCommunicator& communicator,
                                 std::span<float> gradients) {
  // If a sum fails, the communicator's thread may use this timeline a little longer.
  const auto timeline = std::make_shared<DeviceTimeline>(backend);
  const std::unique_ptr<Download> download = timeline->MakeDownload();
  communicator.ObserveDeviceSums(RecorderOfSums(timeline));
  const auto fastest_us = [&](std::span<float> values) {
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTimes; ++i) {
      timeline->BeginStep();
      communicator.AllReduce(values, kTag);
      timeline->BeginDownload(*download);
      fastest = std::min(fastest, ShortestOverRanks(communicator, timeline->Take(*download)));
    }
    return std::isfinite(fastest) ? fastest : 0;
  };
  const std::span<float> large = gradients.first(std::min(gradients.size(), kLarge));
  const std::span<float> small = large.first(std::min(large.size(), kSmall));
  const double small_us = fastest_us(small);
  const double large_us = fastest_us(large);
  communicator.ObserveDeviceSums({});
  if (communicator.rank() == 0)
    LogInfo("comm",
            "an all-reduce of {} bytes takes {:.0f} us on the GPUs, one of {} bytes {:.0f} us",
            small.size_bytes(), small_us, large.size_bytes(), large_us);
  const auto difference = static_cast<double>(large.size_bytes() - small.size_bytes());
  return {.latency_us = small_us,
          .us_per_byte = difference > 0 ? std::max(0.0, large_us - small_us) / difference : 0};
}

}  // namespace carole::train
