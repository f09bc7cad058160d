// Event files for TensorBoard: records of `Event` protocol buffers (CHECKPOINT_FORMAT.md).
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

// A picture as the PNG file's bytes.
struct EventImage {
  int height = 0;
  int width = 0;
  int channels = 3;  // 1 gray, 3 RGB, 4 RGBA
  std::string_view png;
};

// A run's settings, by name, as TensorBoard's HPARAMS page compares runs.
using HyperParameter = std::pair<std::string, std::variant<double, bool, std::string>>;

// Writes one new event file `events.out.tfevents.<seconds>.<host>.<process>.<n>.v2` into a folder
// (one folder for each of training and validation, one rank each). Steps must not go down within a
// file; after a resume make a new writer. Values are kept in memory and reach the file, whole
// records only, at Flush() and when they are many or old. What cannot be written is kept, up to
// 16 MB, and tried again with later values. One thread uses it. Throws DiskError when the file
// cannot be made.
class EventWriter {
 public:
  // What earlier files of the folder hold from first_step on is done again: TensorBoard forgets it.
  explicit EventWriter(const std::string& folder, int64_t first_step = 0);
  ~EventWriter();  // flushes; an error is logged

  void AddScalar(int64_t step, std::string_view tag, float value);
  void AddImage(int64_t step, std::string_view tag, const EventImage& image);
  // Values that are not finite are left out.
  void AddHistogram(int64_t step, std::string_view tag, std::span<const float> values);
  void AddHistogram(int64_t step, std::string_view tag, const Histogram& histogram);
  // Once when a run begins, and when it ends. A run in whose folder both are is a row of HPARAMS.
  void AddHyperParameters(int64_t step, std::span<const HyperParameter> parameters);
  void AddEnd(int64_t step, bool success);

  // Throws DiskError when something could not be written, now or before.
  void Flush();

  const std::string& path() const { return path_; }

 private:
  // Appends a record with a Summary of one value; fill writes the value's payload behind its tag.
  void Add(int64_t step, std::string_view tag, const std::function<void(std::string&)>& fill);
  // A value that is all in the metadata of the plug-in for hyper-parameters.
  void AddHparams(int64_t step, std::string_view tag, const std::string& content);
  void AppendStart(int64_t step);
  void WriteOut();

  std::string path_;
  FileDescriptor file_;
  std::string pending_;  // whole records that are not in the file yet
  int64_t written_ = 0;  // bytes of whole records in the file
  int64_t last_step_ = 0;
  int error_ = 0;  // errno of a failure that no Flush() has told
  std::chrono::steady_clock::time_point last_flush_;
};

}  // namespace carole::io
