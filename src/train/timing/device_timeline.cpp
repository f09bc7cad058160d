// Why spans keep their places.
//
// Task. A trace shows when each reduction began and ended on the device. A captured step is
// replayed without calls of the host, so what it writes goes to the same addresses in each step.
//
// Places. Begin() and End() enqueue kernels that write the device's clock to the place of the span.
// A place belongs to a name, a bucket and a number: the second sum called "batch norm" of a step
// always has the same place. So an eager step writes to the places to which a replay will write.
// The last micro-batch has places of its own, and its numbers start anew. The reason: it may be
// captured in a step that replays the other micro-batches, and a replay counts nothing. The host
// copies all places after each step. A step need not have all spans: if the end of a place is not
// later than the end of the last step, the place was not written.
//
//   Example: places 0 and 1 hold "gradients 0" and "gradients 1"; the last step ended at 900.
//     copied: (910, 940) (850, 890)     -> "gradients 0" from 910 to 940; "gradients 1" is old
//
// If a step has several micro-batches, all but the last one replay the same graph. So their sums of
// batch norm write to the same places, and only the times of the last replay remain.
//
// Clocks. The device's clock has an offset from that of the host, and drifts. When the host has the
// times of a step, its clock shows a moment shortly after the step's end. So the difference of both
// is the offset or more, and the smallest difference is the best. To follow the drift, an old
// smallest difference counts 100 ppm more with time.
#include "src/train/timing/device_timeline.h"

#include <algorithm>
#include <cstring>

namespace carole::train {
namespace {

constexpr int64_t kDrift = 10000;  // 100 ppm, more than the clocks of computers have

std::chrono::nanoseconds Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

}  // namespace

DeviceTimeline::DeviceTimeline(const Backend& backend)
    : backend_(backend),
      kernels_(backend.gpu_stream()->stream),
      memory_(backend.Allocate(kMaxSpans * sizeof(Times))),
      streams_{kernels_} {}

void DeviceTimeline::BeginStep() {
  const std::lock_guard lock(mutex_);
  begun_.clear();
  is_last_part_ = false;
}

void DeviceTimeline::BeginLastPart() {
  const std::lock_guard lock(mutex_);
  begun_.clear();
  is_last_part_ = true;
}

// Returns the number of a stream. A step uses only a few of them.
int DeviceTimeline::NumberOf(void* stream) {
  const auto found = std::ranges::find(streams_, stream);
  if (found == streams_.end()) {
    streams_.push_back(stream);
    return static_cast<int>(streams_.size()) - 1;
  }
  return static_cast<int>(found - streams_.begin());
}

void DeviceTimeline::Begin(std::string_view what, int32_t bucket, size_t bytes, void* stream) {
  if (stream == nullptr) stream = kernels_;
  const Name name(what, bucket);
  size_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] =
        ids_.try_emplace({name, is_last_part_, begun_[name]++}, ids_.size());
    id = last_begun_[name] = place->second;
    if (id >= kMaxSpans) return;
    if (is_new)
      spans_.push_back({.what = name.first,
                        .bucket = bucket,
                        .bytes = bytes,
                        .stream = NumberOf(stream),
                        .start = {},
                        .end = {}});
  }
  backend_.WriteTime(stream, &memory()[id].start);
}

void DeviceTimeline::End(std::string_view what, int32_t bucket, void* stream) {
  size_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = last_begun_.at({std::string(what), bucket});
  }
  if (id < kMaxSpans) backend_.WriteTime(stream == nullptr ? kernels_ : stream, &memory()[id].end);
}

std::unique_ptr<Download> DeviceTimeline::MakeDownload() const {
  return backend_.MakeDownload(kMaxSpans * sizeof(Times));
}

void DeviceTimeline::AdjustClock(uint64_t device_now) {
  const int64_t now = Now().count();
  const int64_t difference = now - static_cast<int64_t>(device_now);
  const int64_t aged = clock_offset_ + (now - adjusted_at_) / kDrift;
  clock_offset_ = adjusted_at_ == 0 ? difference : std::min(difference, aged);
  adjusted_at_ = now;
}

std::vector<DeviceSpan> DeviceTimeline::Take(Download& download) {
  const std::byte* const places = download.Wait();
  const std::lock_guard lock(mutex_);
  std::vector<Times> times(spans_.size());
  std::memcpy(times.data(), places, times.size() * sizeof(Times));
  uint64_t newest = taken_until_;
  for (const Times& t : times) newest = std::max(newest, t.end);
  AdjustClock(newest);
  const auto on_host = [this](uint64_t time) {
    return DeviceSpan::Time(std::chrono::nanoseconds(static_cast<int64_t>(time) + clock_offset_));
  };
  std::vector<DeviceSpan> taken;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].end <= taken_until_) continue;
    taken.push_back(spans_[i]);
    taken.back().start = on_host(times[i].start);
    taken.back().end = on_host(times[i].end);
  }
  taken_until_ = newest;
  return taken;
}

}  // namespace carole::train
