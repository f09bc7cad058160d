// One record to one row of a batch: read, check, parse, decode, preprocess.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/dataset.h"
#include "io/datasets.h"
#include "io/image.h"
#include "io/preprocessing.h"
#include "io/record_index.h"

namespace carole::io {

// Time and images, counted by several threads at once.
struct StageCounters {
  std::atomic<int64_t> images{0};
  std::atomic<int64_t> read_ns{0};
  std::atomic<int64_t> parse_ns{0};
  std::atomic<int64_t> decode_ns{0};
  std::atomic<int64_t> augment_ns{0};
  std::atomic<int64_t> wait_ns{0};

  InputCounters ToCounters() const;
};

struct SampleOptions {
  const DatasetEntry* dataset = nullptr;
  PreprocessingFunction preprocess = nullptr;
  int height = 0;
  int width = 0;
  int channels = 3;
  int labels_offset = 0;  // subtracted from the records' labels
  int num_classes = 0;    // labels are then in [0, num_classes)
  uint64_t seed = 0;
};

// Shared by all threads: the shards, open, and their index.
class SampleReader {
 public:
  // A thread's own memory, reused from sample to sample.
  struct Scratch {
    std::string record;
    Image image;
  };

  // Opens the shards. Throws DiskError.
  SampleReader(const SampleOptions& options, RecordIndex index);

  int64_t num_records() const { return index_.num_records(); }
  int64_t image_values() const {
    return int64_t{options_.height} * options_.width * options_.channels;
  }

  // Fills one row: image (height, width, channels) and label. Thread-safe. Throws DataError that
  // names file, record and offset, or DiskError.
  void Read(int64_t record, int64_t epoch, Scratch& scratch, std::span<float> image, int32_t* label,
            StageCounters& counters) const;

 private:
  int32_t CheckedLabel(int64_t stored) const;
  // A record of format "raw": its bytes are the pixels.
  void CopyRaw(std::string_view pixels, int64_t height, int64_t width, Image* image) const;

  SampleOptions options_;
  RecordIndex index_;
  std::vector<std::unique_ptr<Source>> shards_;
};

}  // namespace carole::io
