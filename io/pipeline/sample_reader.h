// Turns one record into one row of a batch: reads, verifies, parses, decodes and preprocesses it.
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

// InputCounters that several threads may increment at once.
struct StageCounters {
  std::atomic<int64_t> images{0};
  std::atomic<int64_t> read_bytes{0};
  std::atomic<int64_t> read_ns{0};
  std::atomic<int64_t> parse_ns{0};
  std::atomic<int64_t> decode_ns{0};
  std::atomic<int64_t> augment_ns{0};

  InputCounters ToCounters() const;
};

// Thrown for a record that cannot be used. The text names its file, number and offset.
class BadRecordError : public DataError {
 public:
  BadRecordError(RecordFault fault, const std::string& text) : DataError(text), fault_(fault) {}
  RecordFault fault() const { return fault_; }

 private:
  RecordFault fault_;
};

// The parsed example of a sample. The views point into the record.
struct LabeledImage {
  std::string_view encoded;
  std::optional<ImageView> pixels;  // set if `encoded` holds raw pixels, not an image file
  int64_t label = 0;
};

// The open shards and their index. All threads share one reader.
class SampleReader {
 public:
  // Working memory of one thread, reused from sample to sample.
  struct Scratch {
    std::string record;
    LazyImage image;
    std::vector<float> values;
  };

  // Opens the shards. Throws DiskError if one cannot be opened, ConfigError if the process may not
  // open that many files, DataError if inflated shards would take too much memory.
  SampleReader(const SampleOptions& options, RecordIndex index);

  int64_t num_records() const { return index_.num_records(); }
  int64_t values_per_image() const {
    return int64_t{options_.height} * options_.width * options_.channels;
  }

  // Returns a hash of the record's shard and offset: the term of one record in EpochCounts::hash.
  uint64_t HashOf(int64_t record) const;

  // Fills one row: `image` (height, width, channels) and `label`. Random numbers are keyed by
  // (seed, epoch, record). Thread-safe if each thread has its own scratch. Throws BadRecordError or
  // DiskError.
  void Read(int64_t record, int64_t epoch, Scratch& scratch, std::span<float> image, int32_t* label,
            StageCounters& counters) const;

  // The same, with the image as bytes (ToPixels()).
  void Read(int64_t record, int64_t epoch, Scratch& scratch, std::span<uint8_t> pixels,
            int32_t* label, StageCounters& counters) const;

  // Asks the operating system to load these records soon (as madvise's MADV_WILLNEED). Sorts
  // `records`.
  void WillNeed(std::vector<int64_t>& records) const;

 private:
  // Subtracts labels_offset. Throws DataError if the label is out of range.
  int32_t CheckedLabel(int64_t stored) const;
  void OpenImage(const LabeledImage& image, Scratch& scratch) const;

  SampleOptions options_;
  PreprocessingFunction preprocess_;
  bool want_boxes_;
  float deviation_;  // of the preprocessed values
  int channels_;     // of the decoded image; more than of the output if color becomes gray
  RecordIndex index_;
  std::vector<std::unique_ptr<Source>> shards_;
};

}  // namespace carole::io
