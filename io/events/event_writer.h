// Writes event files for TensorBoard. README.md describes the format.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "io/events/histogram.h"
#include "src/core/files/disk.h"

namespace carole::io {

// An image as the bytes of a PNG file.
struct EventImage {
  int height = 0;
  int width = 0;
  int channels = 3;  // 1 gray, 3 RGB, 4 RGBA
  std::string_view png;
};

// A setting of the run, (name, value). TensorBoard's HPARAMS page compares runs by these.
using HyperParameter = std::pair<std::string, std::variant<double, bool, std::string>>;

// Writes one new event file `events.out.tfevents.<seconds>.<host>.<process>.<n>.v2` into a folder.
// Use one folder for training and one for validation, and let one rank write each.
//
// Values are buffered in memory. Whole records are written at Flush(), and when the buffer is large
// (256 KiB) or old (10 s). If a write fails, up to 16 MB are kept and tried again later. Steps must
// not decrease within a file; make a new writer after a resume. One thread uses a writer.
class EventWriter {
 public:
  // Creates the file. If first_step > 0, TensorBoard discards what earlier files of the folder hold
  // from that step on, because the run repeats it. Throws DiskError if the file cannot be created.
  explicit EventWriter(const std::string& folder, int64_t first_step = 0);
  ~EventWriter();  // flushes and makes the file durable; an error is logged

  void AddScalar(int64_t step, std::string_view tag, float value);
  void AddImage(int64_t step, std::string_view tag, const EventImage& image);
  // Values that are not finite are ignored.
  void AddHistogram(int64_t step, std::string_view tag, std::span<const float> values);
  void AddHistogram(int64_t step, std::string_view tag, const Histogram& histogram);
  // Call AddHyperParameters() once when a run begins and AddSessionEnd() once when it ends. A
  // folder with both becomes a row of TensorBoard's HPARAMS page.
  void AddHyperParameters(int64_t step, std::span<const HyperParameter> parameters);
  void AddSessionEnd(int64_t step, bool success);

  // Writes what is buffered. Throws DiskError if this or an earlier write failed.
  void Flush();

  const std::string& path() const { return path_; }

 private:
  // Appends a record with a Summary of one value. `fill` appends the payload after the value's tag.
  void Add(int64_t step, std::string_view tag, const std::function<void(std::string&)>& fill);
  // Adds an empty tensor whose metadata holds `content` for TensorBoard's plug-in "hparams".
  void AddHparamsValue(int64_t step, std::string_view tag, const std::string& content);
  // Appends the event that makes TensorBoard discard earlier values from `step` on.
  void AppendSessionStart(int64_t step);
  // Writes pending_. Stores an error in error_ instead of throwing.
  void WritePending();

  std::string path_;
  FileDescriptor file_;
  std::string pending_;  // whole records that are not in the file yet
  int64_t written_ = 0;  // size of the whole records in the file
  int64_t last_step_ = 0;
  int error_ = 0;  // errno of a failed write that no Flush() has thrown yet
  std::chrono::steady_clock::time_point last_flush_;
};

}  // namespace carole::io
