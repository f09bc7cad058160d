// One record to one row of a batch: read, check, parse, decode, preprocess.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/datasets/datasets.h"
#include "io/image/image.h"
#include "io/image/lazy_image.h"
#include "io/pipeline/dataset.h"
#include "io/pipeline/sample_options.h"
#include "io/preprocessing/preprocessing.h"
#include "io/records/record_index.h"
#include "src/core/error.h"

namespace carole::io {

// Time and images, counted by several threads at once.
struct StageCounters {
  std::atomic<int64_t> images{0};
  std::atomic<int64_t> read_bytes{0};
  std::atomic<int64_t> read_ns{0};
  std::atomic<int64_t> parse_ns{0};
  std::atomic<int64_t> decode_ns{0};
  std::atomic<int64_t> augment_ns{0};

  InputCounters ToCounters() const;
};

// A record that cannot be used: its place, and what is wrong with it.
class BadRecordError : public DataError {
 public:
  BadRecordError(RecordFault fault, const std::string& text) : DataError(text), fault_(fault) {}
  RecordFault fault() const { return fault_; }

 private:
  RecordFault fault_;
};

// What a sample needs of its example: views into the record.
struct LabeledImage {
  std::string_view encoded;
  std::optional<ImageView> pixels;  // what encoded holds where it is no image file
  int64_t label = 0;
};

// Shared by all threads: the shards, open, and their index.
class SampleReader {
 public:
  // A thread's own memory, reused from sample to sample.
  struct Scratch {
    std::string record;
    LazyImage picture;
    std::vector<float> values;
  };

  // Opens the shards. Throws DiskError, and DataError when inflated shards would take too much
  // memory.
  SampleReader(const SampleOptions& options, RecordIndex index);

  int64_t num_records() const { return index_.num_records(); }
  int64_t image_values() const {
    return int64_t{options_.height} * options_.width * options_.channels;
  }

  // Fills one row: image (height, width, channels) and label. Thread-safe. Throws BadRecordError
  // that names file, record and offset, or DiskError.
  void Read(int64_t record, int64_t epoch, Scratch& scratch, std::span<float> image, int32_t* label,
            StageCounters& counters) const;

  // The same as bytes (ToPixels()).
  void Read(int64_t record, int64_t epoch, Scratch& scratch, std::span<uint8_t> pixels,
            int32_t* label, StageCounters& counters) const;

  // Asks the operating system to have these records in memory soon. Sorts them.
  void WillNeed(std::vector<int64_t>& records) const;

 private:
  int32_t CheckedLabel(int64_t stored) const;
  void OpenPicture(const LabeledImage& image, Scratch& scratch) const;

  SampleOptions options_;
  PreprocessingFunction preprocess_;
  bool want_boxes_;
  int channels_;  // that are decoded
  RecordIndex index_;
  std::vector<std::unique_ptr<Source>> shards_;
};

}  // namespace carole::io
