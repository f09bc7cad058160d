#include "io/sample_reader.h"

#include <fmt/format.h>

#include <array>
#include <chrono>

#include "io/example.h"
#include "io/tfrecord.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// Adds the time since it was made, or since the last lap, to a counter.
class Stopwatch {
 public:
  void Lap(std::atomic<int64_t>& counter) {
    const auto now = std::chrono::steady_clock::now();
    counter.fetch_add(std::chrono::nanoseconds(now - last_).count(), std::memory_order_relaxed);
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// The error of a stage that does not know the record, with the record's place behind its tag.
[[noreturn]] void RethrowAt(const DataError& error, std::string_view file,
                            const RecordIndex::Entry& entry) {
  std::string_view text = error.what();
  const size_t tag_end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  if (tag_end != std::string_view::npos) text.remove_prefix(tag_end + 2);
  throw DataError(RecordPlace(file, entry.index, entry.offset) + std::string(text));
}

// What a sample needs of its example.
struct LabelledImage {
  std::string_view encoded;
  int64_t label = 0;
  bool raw = false;  // encoded is (height, width, channels) pixels
  int64_t height = 0;
  int64_t width = 0;
};

LabelledImage ParseExample(std::string_view example) {
  enum Key { kEncoded, kFormat, kLabel, kHeight, kWidth, kNumKeys };
  std::array<FeatureQuery, kNumKeys> found = {{{"image/encoded"},
                                               {"image/format"},
                                               {"image/class/label"},
                                               {"image/height"},
                                               {"image/width"}}};
  FindFeatures(example, found);
  const auto encoded = FirstBytes(found[kEncoded]);
  if (!encoded) throw DataError("key missing: got no image/encoded; is this a record of images?");
  const auto label = FirstInt64(found[kLabel]);
  if (!label) throw DataError("key missing: got no image/class/label");
  const std::string_view format = FirstBytes(found[kFormat]).value_or("");
  if (format != "raw" && format != "RAW") return {.encoded = *encoded, .label = *label};
  return {.encoded = *encoded,
          .label = *label,
          .raw = true,
          .height = FirstInt64(found[kHeight]).value_or(0),
          .width = FirstInt64(found[kWidth]).value_or(0)};
}

}  // namespace

InputCounters StageCounters::ToCounters() const {
  const auto ms = [](const std::atomic<int64_t>& ns) {
    return 1e-6 * static_cast<double>(ns.load());
  };
  return {.images = images.load(),
          .read_ms = ms(read_ns),
          .parse_ms = ms(parse_ns),
          .decode_ms = ms(decode_ns),
          .augment_ms = ms(augment_ns),
          .wait_ms = ms(wait_ns)};
}

SampleReader::SampleReader(const SampleOptions& options, RecordIndex index)
    : options_(options), index_(std::move(index)) {
  for (const ShardIndex& shard : index_.shards())
    shards_.push_back(OpenSeekableRecords(shard.path));
}

void SampleReader::Read(int64_t record, int64_t epoch, Scratch& scratch, std::span<float> image,
                        int32_t* label, StageCounters& counters) const {
  Stopwatch watch;
  const RecordIndex::Entry entry = index_.Find(record);
  const Source& shard = *shards_[entry.shard];
  const auto example = ReadRecordAt(shard, entry.offset, entry.index, scratch.record, entry.length);
  watch.Lap(counters.read_ns);
  try {
    if (!example) throw DataError("record is gone: the shard became shorter while it was read");
    const LabelledImage parsed = ParseExample(*example);
    *label = CheckedLabel(parsed.label);
    watch.Lap(counters.parse_ns);

    if (parsed.raw) {
      CopyRaw(parsed.encoded, parsed.height, parsed.width, &scratch.image);
    } else {
      DecodeImage(parsed.encoded, options_.channels, &scratch.image);
    }
    watch.Lap(counters.decode_ns);

    Rng rng(options_.seed, RngPurpose::kAugment, static_cast<uint64_t>(epoch),
            static_cast<uint64_t>(record));
    options_.preprocess({.image = scratch.image.view(),
                         .height = options_.height,
                         .width = options_.width,
                         .out = image,
                         .rng = &rng});
    watch.Lap(counters.augment_ns);
  } catch (const DataError& error) {
    RethrowAt(error, shard.name(), entry);
  }
  counters.images.fetch_add(1, std::memory_order_relaxed);
}

int32_t SampleReader::CheckedLabel(int64_t stored) const {
  const int64_t low = options_.labels_offset;
  const int64_t high = low + options_.num_classes - 1;
  if (stored >= low && stored <= high) return static_cast<int32_t>(stored - low);
  throw DataError(
      fmt::format("label out of range: got {}, want {} to {} ({} classes, --labels_offset={})",
                  stored, low, high, options_.num_classes, options_.labels_offset));
}

void SampleReader::CopyRaw(std::string_view pixels, int64_t height, int64_t width,
                           Image* image) const {
  ResizeImage("raw", height, width, options_.channels, image);
  if (pixels.size() != image->pixels.size()) {
    throw DataError(fmt::format("raw image of wrong size: got {} bytes, want {}x{}x{}",
                                pixels.size(), height, width, options_.channels));
  }
  pixels.copy(reinterpret_cast<char*>(image->pixels.data()), pixels.size());
}

}  // namespace carole::io
