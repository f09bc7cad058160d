#include "io/events/event_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "io/records/tfrecord.h"
#include "src/core/check.h"
#include "src/core/host_name.h"
#include "src/core/log.h"
#include "src/core/text/parse_number.h"

namespace carole::io {
namespace {

constexpr char kTag[] = "io.event_writer";
constexpr size_t kMaxPendingBytes = 256 << 10;
constexpr size_t kMaxUnwrittenBytes = 16 << 20;  // kept while the disk is full
constexpr std::chrono::seconds kMaxPendingAge{10};

// Field numbers of TensorFlow's protocol buffers (event.proto, summary.proto, plugin_data.proto).
namespace field {
constexpr protozero::pbf_tag_type kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5,
                                  kSessionLog = 7;  // Event
constexpr protozero::pbf_tag_type kValue = 1;       // Summary
constexpr protozero::pbf_tag_type kValueTag = 1, kSimpleValue = 2, kImage = 4, kHisto = 5,
                                  kTensor = 8, kMetadata = 9;                      // Summary.Value
constexpr protozero::pbf_tag_type kPluginData = 1, kPluginName = 1, kContent = 2;  // Metadata
constexpr protozero::pbf_tag_type kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4;  // Image
constexpr protozero::pbf_tag_type kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5,
                                  kBucketLimit = 6, kBucket = 7;  // HistogramProto
constexpr protozero::pbf_tag_type kDType = 1, kTensorShape = 2;   // TensorProto
// HParamsPluginData, SessionStartInfo, SessionEndInfo; a map entry and google.protobuf.Value.
constexpr protozero::pbf_tag_type kSessionStart = 3, kSessionEnd = 4;
constexpr protozero::pbf_tag_type kHparams = 1, kStartTime = 5, kStatus = 1, kEndTime = 2;
constexpr protozero::pbf_tag_type kMapKey = 1, kMapValue = 2;
constexpr protozero::pbf_tag_type kNumberValue = 2, kStringValue = 3, kBoolValue = 4;
constexpr protozero::pbf_tag_type kDim = 2, kSize = 1;  // TensorShapeProto
}  // namespace field

constexpr int kDTypeFloat = 1;
constexpr int kStatusSuccess = 1, kStatusFailure = 2;
constexpr int kSessionLogStart = 1;

double WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::string_view kPrefix = "events.out.tfevents.";

// Returns the 10-digit number of seconds in "events.out.tfevents.<seconds>.…", 0 for other names.
int64_t SecondsIn(std::string_view name) {
  constexpr size_t kDigits = 10;
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  return ParseNumber<int64_t>(name.substr(0, std::min(kDigits, name.find('.')))).value_or(0);
}

// TensorBoard reads the files of a folder in the order of their names. So the name is chosen to
// come last, even if a clock was set back.
std::string MakePath(const std::string& folder) {
  static std::atomic<int> count{0};
  int64_t seconds = std::time(nullptr);
  std::error_code error;
  for (const std::string& file : NamesIn(folder, error))
    seconds = std::max(seconds, SecondsIn(file) + 1);
  const std::string name =
      fmt::format("{}{:010}.{}.{}.{}.v2", kPrefix, seconds, HostName(), getpid(), count++);
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

EventWriter::EventWriter(const std::string& folder, int64_t first_step)
    : file_(CreateNewFile(
          kTag, [&] { return MakePath(folder); }, path_)),
      last_flush_(std::chrono::steady_clock::now()) {
  std::string event;
  protozero::pbf_writer writer(event);
  writer.add_double(field::kWallTime, WallTime());
  writer.add_string(field::kFileVersion, "brain.Event:2");
  AppendRecord(pending_, event);
  if (first_step > 0) AppendSessionStart(first_step);
  WritePending();
  const FileDescriptor directory(
      RetryIfInterrupted([&] { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (directory.is_open()) RetryIfInterrupted([&] { return fsync(directory.get()); });
}

EventWriter::~EventWriter() {
  try {
    Flush();
    // Later runs add files, so this one must not be lost with them.
    SyncFile(kTag, path_, file_.get());
  } catch (const std::exception& error) {
    LogError(kTag, "the last summaries were not written: {}", WithoutTag(error.what()));
  }
}

void EventWriter::AppendSessionStart(int64_t step) {
  std::string log;
  protozero::pbf_writer(log).add_enum(field::kStatus, kSessionLogStart);
  std::string event;
  protozero::pbf_writer writer(event);
  writer.add_double(field::kWallTime, WallTime());
  writer.add_int64(field::kStep, step);
  writer.add_message(field::kSessionLog, log);
  AppendRecord(pending_, event);
}

void EventWriter::AddScalar(int64_t step, std::string_view tag, float value) {
  Add(step, tag,
      [&](std::string& out) { protozero::pbf_writer(out).add_float(field::kSimpleValue, value); });
}

void EventWriter::AddImage(int64_t step, std::string_view tag, const EventImage& image) {
  Add(step, tag, [&](std::string& out) {
    protozero::pbf_writer value(out);
    protozero::pbf_writer message(value, field::kImage);
    message.add_int32(field::kHeight, image.height);
    message.add_int32(field::kWidth, image.width);
    message.add_int32(field::kColorspace, image.channels);
    message.add_bytes(field::kEncoded, image.png.data(), image.png.size());
  });
}

void EventWriter::AddHistogram(int64_t step, std::string_view tag, std::span<const float> values) {
  AddHistogram(step, tag, MakeHistogram(values));
}

void EventWriter::AddHistogram(int64_t step, std::string_view tag, const Histogram& h) {
  Add(step, tag, [&](std::string& out) {
    protozero::pbf_writer value(out);
    protozero::pbf_writer message(value, field::kHisto);
    message.add_double(field::kMin, h.min);
    message.add_double(field::kMax, h.max);
    message.add_double(field::kNum, h.count);
    message.add_double(field::kSum, h.sum);
    message.add_double(field::kSumSquares, h.sum_squares);
    message.add_packed_double(field::kBucketLimit, h.limits.begin(), h.limits.end());
    message.add_packed_double(field::kBucket, h.counts.begin(), h.counts.end());
  });
}

void EventWriter::AddHyperParameters(int64_t step, std::span<const HyperParameter> parameters) {
  std::string info;
  protozero::pbf_writer start(info);
  for (const auto& [name, value] : parameters) {
    protozero::pbf_writer entry(start, field::kHparams);
    entry.add_string(field::kMapKey, name);
    protozero::pbf_writer content(entry, field::kMapValue);
    if (const auto* number = std::get_if<double>(&value)) {
      content.add_double(field::kNumberValue, *number);
    } else if (const auto* truth = std::get_if<bool>(&value)) {
      content.add_bool(field::kBoolValue, *truth);
    } else {
      content.add_string(field::kStringValue, std::get<std::string>(value));
    }
  }
  start.add_double(field::kStartTime, WallTime());
  std::string data;
  protozero::pbf_writer(data).add_message(field::kSessionStart, info);
  AddHparamsValue(step, "_hparams_/session_start_info", data);
}

void EventWriter::AddSessionEnd(int64_t step, bool success) {
  std::string info;
  protozero::pbf_writer end(info);
  end.add_enum(field::kStatus, success ? kStatusSuccess : kStatusFailure);
  end.add_double(field::kEndTime, WallTime());
  std::string data;
  protozero::pbf_writer(data).add_message(field::kSessionEnd, info);
  AddHparamsValue(step, "_hparams_/session_end_info", data);
}

void EventWriter::AddHparamsValue(int64_t step, std::string_view tag, const std::string& content) {
  Add(step, tag, [&](std::string& out) {
    protozero::pbf_writer value(out);
    {
      protozero::pbf_writer tensor(value, field::kTensor);  // shape [0]: no elements
      tensor.add_enum(field::kDType, kDTypeFloat);
      protozero::pbf_writer shape(tensor, field::kTensorShape);
      protozero::pbf_writer dim(shape, field::kDim);
      dim.add_int64(field::kSize, 0);
    }
    protozero::pbf_writer metadata(value, field::kMetadata);
    protozero::pbf_writer plugin(metadata, field::kPluginData);
    plugin.add_string(field::kPluginName, "hparams");
    plugin.add_bytes(field::kContent, content);
  });
}

void EventWriter::Add(int64_t step, std::string_view tag,
                      const std::function<void(std::string&)>& fill) {
  CAROLE_CHECK(step >= last_step_, "summary {}: step {} after step {}: steps must not decrease",
               tag, step, last_step_);
  last_step_ = step;
  std::string value;
  protozero::pbf_writer(value).add_string(field::kValueTag, tag.data(), tag.size());
  fill(value);
  std::string event;
  protozero::pbf_writer writer(event);
  writer.add_double(field::kWallTime, WallTime());
  writer.add_int64(field::kStep, step);
  {
    protozero::pbf_writer summary(writer, field::kSummary);
    summary.add_message(field::kValue, value);
  }
  AppendRecord(pending_, event);
  const auto age = std::chrono::steady_clock::now() - last_flush_;
  if (pending_.size() >= kMaxPendingBytes || age >= kMaxPendingAge) WritePending();
}

void EventWriter::Flush() {
  WritePending();
  if (const int error = std::exchange(error_, 0)) ThrowDiskError(kTag, path_, "write", error);
}

void EventWriter::WritePending() {
  last_flush_ = std::chrono::steady_clock::now();
  if (const int error = WriteAt(file_.get(), pending_, written_)) {
    error_ = error;
    // A partial record must be removed: a reader would wait for its end forever.
    if (RetryIfInterrupted([&] { return ftruncate(file_.get(), written_); }) != 0)
      LogWarning(kTag, "{}: ends in a partial record, which cannot be removed", path_);
    if (pending_.size() > kMaxUnwrittenBytes) pending_.clear();
    return;
  }
  written_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
}

}  // namespace carole::io
