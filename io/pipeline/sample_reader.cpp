#include "io/pipeline/sample_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "io/records/boxes.h"
#include "io/records/example.h"
#include "io/records/raw_pixels.h"
#include "io/records/tfrecord.h"
#include "src/core/error.h"
#include "src/core/files/open_file_limit.h"
#include "src/core/rng.h"
#include "src/core/stopwatch.h"

namespace carole::io {
namespace {

// Adds the time since the watch's last lap to the counter.
void Add(Stopwatch& watch, std::atomic<int64_t>& counter) {
  counter.fetch_add(watch.LapTime().count(), std::memory_order_relaxed);
}

// Throws the error of a stage again, with the record's location if the text does not have it yet.
[[noreturn]] void RethrowAt(const DataError& error, RecordFault fault, std::string_view file,
                            const RecordIndex::Entry& entry) {
  throw BadRecordError(fault,
                       WithLocation(RecordLocation(file, entry.index, entry.offset), error.what()));
}

LabeledImage ParseExample(std::string_view example, const DatasetEntry* dataset, int channels) {
  enum Key { kEncoded, kFormat, kHeight, kWidth, kLabel, kNumKeys };
  std::array<FeatureQuery, kNumKeys> found = {{{"image/encoded"},
                                               {"image/format"},
                                               {"image/height"},
                                               {"image/width"},
                                               {"image/class/label"}}};
  FindFeatures(example, found);
  const StoredImage stored = ReadStoredImage(found);
  const auto label = SingleInt64(found[kLabel]);
  if (!label) throw DataError("key missing: got no image/class/label");
  return {.encoded = stored.encoded,
          .pixels = FindRawPixels(stored, RawPixelsOf(dataset), channels),
          .label = *label};
}

// Raises the soft limit of open files if needed: a data set of 1024 shards exceeds the usual one.
void RequireOpenFiles(size_t count) {
  if (const auto limit = RaiseOpenFileLimit(count)) {
    throw ConfigError(
        fmt::format("[io.tfrecord] {} shards: too many open files: got a hard limit of {} files; "
                    "raise it (ulimit -Hn {})",
                    count, *limit, *limit + count));
  }
}

}  // namespace

InputCounters StageCounters::ToCounters() const {
  const auto ms = [](const std::atomic<int64_t>& ns) {
    return 1e-6 * static_cast<double>(ns.load());
  };
  return {.images = images.load(),
          .read_bytes = read_bytes.load(),
          .read_ms = ms(read_ns),
          .parse_ms = ms(parse_ns),
          .decode_ms = ms(decode_ns),
          .augment_ms = ms(augment_ns)};
}

SampleReader::SampleReader(const SampleOptions& options, RecordIndex index)
    : options_(options),
      preprocess_(options.training ? options.preprocessing->train : options.preprocessing->eval),
      want_boxes_(options.use_bounding_boxes && options.training &&
                  options.preprocessing->uses_boxes),
      deviation_(DeviationOf(*options.preprocessing)),
      channels_(options.channels == 1 ? options.dataset->channels : options.channels),
      index_(std::move(index)) {
  RequireOpenFiles(index_.shards().size());
  constexpr uint64_t kMaxInflatedBytes = uint64_t{8} << 30;
  uint64_t inflated_bytes = 0;
  for (const ShardIndex& shard : index_.shards()) {
    shards_.push_back(OpenSeekableRecords(shard.path, shard.damaged));
    const Source& source = *shards_.back();
    if (options_.random_order) source.ExpectRandomReads();
    if (source.size() != shard.file_bytes) inflated_bytes += source.size().value_or(0);
    if (inflated_bytes > kMaxInflatedBytes) {
      throw DataError(fmt::format(
          "[io.tfrecord] {}: compressed shards take too much memory: got more than {} bytes, want "
          "at most {}; decompress them first (gunzip)",
          shard.path, inflated_bytes, kMaxInflatedBytes));
    }
  }
}

void SampleReader::Read(int64_t record, int64_t epoch, Scratch& scratch, std::span<float> image,
                        int32_t* label, StageCounters& counters) const {
  Stopwatch watch;
  const RecordIndex::Entry entry = index_.Find(record);
  const Source& shard = *shards_[entry.shard];
  RecordFault stage = RecordFault::kRecord;
  try {
    const auto example =
        ReadRecordAt(shard, entry.offset, entry.index, scratch.record, entry.length);
    if (!example) throw DataError("record is missing: the shard was truncated while it was read");
    counters.read_bytes.fetch_add(static_cast<int64_t>(example->size()), std::memory_order_relaxed);
    Add(watch, counters.read_ns);

    stage = RecordFault::kExample;
    const LabeledImage parsed = ParseExample(*example, options_.dataset, channels_);
    const std::vector<Box> boxes = want_boxes_ ? ReadBoxes(*example) : std::vector<Box>();
    *label = CheckedLabel(parsed.label);
    Add(watch, counters.parse_ns);

    stage = RecordFault::kImage;
    const std::chrono::nanoseconds decoded = scratch.image.decode_time();
    OpenImage(parsed, scratch);
    Rng rng(options_.seed, RngPurpose::kAugment, static_cast<uint64_t>(epoch),
            static_cast<uint64_t>(record));
    Preprocess(*options_.preprocessing, preprocess_,
               {.image = scratch.image,
                .height = options_.height,
                .width = options_.width,
                .out = image,
                .rng = &rng,
                .boxes = boxes,
                .fast_mode = options_.fast_mode,
                .min_crop_area = options_.min_crop_area});
    for (const auto& [name, augmentation] : options_.augmentations.images) {
      Rng own = AugmentationRng(options_.seed, name, epoch, record);
      augmentation->Apply({.values = image,
                           .height = options_.height,
                           .width = options_.width,
                           .channels = options_.channels,
                           .deviation = deviation_,
                           .rng = own});
    }
    const int64_t decode_ns = (scratch.image.decode_time() - decoded).count();
    counters.decode_ns.fetch_add(decode_ns, std::memory_order_relaxed);
    counters.augment_ns.fetch_add(watch.LapTime().count() - decode_ns, std::memory_order_relaxed);
  } catch (const DataError& error) {
    RethrowAt(error, stage, shard.name(), entry);
  }
  counters.images.fetch_add(1, std::memory_order_relaxed);
}

void SampleReader::Read(int64_t record, int64_t epoch, Scratch& scratch, std::span<uint8_t> pixels,
                        int32_t* label, StageCounters& counters) const {
  scratch.values.resize(pixels.size());
  Read(record, epoch, scratch, std::span(scratch.values), label, counters);
  Stopwatch watch;
  ToPixels(*options_.preprocessing, scratch.values, options_.channels, pixels);
  Add(watch, counters.augment_ns);
}

void SampleReader::WillNeed(std::vector<int64_t>& records) const {
  constexpr uint64_t kGapBytes = 64 << 10;  // a gap of this size is cheaper to read than to skip
  std::sort(records.begin(), records.end());
  int shard = -1;
  uint64_t begin = 0, end = 0;
  const auto request = [&] {
    if (shard >= 0) shards_[shard]->WillNeed(begin, end - begin);
  };
  for (int64_t record : records) {
    const RecordIndex::Entry entry = index_.Find(record);
    if (entry.shard != shard || entry.offset > end + kGapBytes) {
      request();
      shard = entry.shard;
      begin = entry.offset;
    }
    end = entry.offset + entry.length + kRecordFramingBytes;
  }
  request();
}

uint64_t SampleReader::HashOf(int64_t record) const {
  const RecordIndex::Entry entry = index_.Find(record);
  return SplitMix64(SplitMix64(static_cast<uint64_t>(entry.shard)) ^ entry.offset);
}

int32_t SampleReader::CheckedLabel(int64_t stored) const {
  const int64_t low = options_.labels_offset;
  const int64_t high = low + options_.num_classes - 1;
  if (stored >= low && stored <= high) return static_cast<int32_t>(stored - low);
  throw DataError(fmt::format("label out of range: got {}, want {} to {} ({} classes, {})", stored,
                              low, high, options_.num_classes,
                              Option("labels_offset", std::to_string(options_.labels_offset))));
}

void SampleReader::OpenImage(const LabeledImage& image, Scratch& scratch) const {
  if (image.pixels) return scratch.image.Open(*image.pixels);
  scratch.image.Open(
      image.encoded,
      {.channels = channels_, .dct_method = options_.dct_method, .scaling = options_.dct_scaling});
}

}  // namespace carole::io
