// Records for traces when a device began and ended the parts of each step. The host cannot see them
// when a captured step is replayed.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/device_all_reduce.h"
#include "src/backend/backend.h"

namespace carole::train {

// A span of time on a device.
struct DeviceSpan {
  using Time = std::chrono::steady_clock::time_point;

  std::string what;
  int32_t bucket = 0;  // of a reduction
  size_t bytes = 0;    // of a reduction
  int stream = 0;      // 0 for the stream of the kernels, others for streams of reductions
  Time start, end;     // on this host's clock
};

// Records spans in device memory. device_timeline.cpp explains how.
class DeviceTimeline {
 public:
  // The number of different spans in a step. Further ones are not recorded.
  static constexpr size_t kMaxSpans = 1024;

  // The backend must outlive this.
  explicit DeviceTimeline(const Backend& backend);

  // Call it on the host before the work of each step.
  void BeginStep();
  // Call it if the rest of a step is captured by itself, before that rest.
  void BeginLastPart();
  // Enqueue the begin or end of a span in `stream`; null: the stream of the kernels. The device
  // writes the time when it gets there. May be captured. Spans of a stream may be nested. Callable
  // from any thread.
  void Begin(std::string_view what, int32_t bucket = 0, size_t bytes = 0, void* stream = nullptr);
  void End(std::string_view what, int32_t bucket = 0, void* stream = nullptr);

  std::unique_ptr<Download> MakeDownload() const;
  // Enqueues the download of a step's spans, after all of them have ended. Does not block.
  void BeginDownload(Download& download) const { download.Begin(memory_.get()); }
  // Waits for the download of the next step, and returns its spans.
  std::vector<DeviceSpan> Take(Download& download);

 private:
  struct Times {
    uint64_t start = 0, end = 0;  // nanoseconds of the device's clock
  };
  using Name = std::pair<std::string, int32_t>;  // what and bucket
  // The name, whether it is in the last part, and how many spans of the name are before it there.
  using Place = std::tuple<Name, bool, int>;

  Times* memory() const { return reinterpret_cast<Times*>(memory_.get()); }
  int NumberOf(void* stream);
  void AdjustClock(uint64_t device_now);

  const Backend& backend_;
  void* const kernels_;        // the stream of the kernels
  const DeviceMemory memory_;  // Times of each span
  std::mutex mutex_;
  std::vector<DeviceSpan> spans_;      // without times
  std::map<Place, size_t> ids_;        // of spans_
  std::map<Name, int> begun_;          // in this part of the step
  bool is_last_part_ = false;          // of the step
  std::map<Name, size_t> last_begun_;  // ids
  std::vector<void*> streams_;
  uint64_t taken_until_ = 0;  // end of the last step, on the device's clock
  int64_t clock_offset_ = 0;  // nanoseconds from the device's clock to the host's
  int64_t adjusted_at_ = 0;   // nanoseconds of the host's clock; 0: never
};

// Returns an observer for DeviceCollectives::ObserveDeviceSums() that records each sum. `timeline`
// is any kind of pointer to a timeline.
template <typename Pointer>
auto RecorderOfSums(Pointer timeline) {
  return [timeline](const collectives::DeviceSumEdge& edge) {
    edge.is_end ? timeline->End(edge.what, edge.bucket, edge.stream)
                : timeline->Begin(edge.what, edge.bucket, edge.bytes, edge.stream);
  };
}

}  // namespace carole::train
