// The trainer's view of its input: batches, and the progress of the run through the data.
//
// How records are divided (sharding.h): epoch e visits a permutation of all records, keyed by
// (seed, e). A global batch is the next size * local_batch entries. Rank r takes the r-th slice of
// local_batch entries. So N ranks with local batch B see the same as one rank with batch N * B, and
// each record is seen once per epoch.
//
// The last global batch of an epoch may be short. Rows past the end have weight 0. They repeat
// samples of the batch, so that batch statistics stay sensible.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace carole::io {

// Why a record was skipped: bad framing (checksum, length), bad example (fields, label), bad image.
enum class RecordFault { kRecord, kExample, kImage };
inline constexpr int kNumRecordFaults = 3;

using SkippedRecords = std::array<int64_t, kNumRecordFaults>;  // one count for each RecordFault

// Counts the records of an epoch, for one rank or for all.
struct EpochCounts {
  int64_t seen = 0;  // records that were used
  SkippedRecords skipped{};
  // The sum of a hash of each record's shard and offset, seen or skipped. Equal sums over equally
  // many records mean that the records are the same.
  uint64_t hash = 0;

  int64_t num_skipped() const { return skipped[0] + skipped[1] + skipped[2]; }
  void Add(const EpochCounts& other) {
    seen += other.seen;
    for (size_t fault = 0; fault < skipped.size(); ++fault) skipped[fault] += other.skipped[fault];
    hash += other.hash;
  }
};

// One rank's part of a global batch, in the layout that kernels read. The BatchSource owns the
// memory behind the spans. It lasts through one more call of Next(), because a step is launched
// before the previous one has ended.
struct Batch {
  // Either `images` or `pixels` is set, with shape (local_batch, height, width, channels),
  // row-major.
  std::span<const float> images;
  std::span<const uint8_t> pixels;  // bytes that the net normalizes (preprocessing.h)
  std::span<const int32_t> labels;  // (local_batch)
  // (local_batch, classes), each row sums to 1. Empty unless a BatchTransform is active.
  std::span<const float> soft_labels;
  int64_t valid = 0;         // rows 0 to valid - 1 count on this rank
  int64_t global_valid = 0;  // rows that count over all ranks: the loss divides by it
  // The largest `valid` of any rank. -1: that of rank 0, which is filled first. This holds unless
  // records were skipped.
  int64_t max_valid = -1;
  int64_t first_sample = 0;  // position of row 0 in the epoch, over all ranks (keys dropout)
  int64_t epoch = 0;         // of this batch; the first is 0
  // Progress of the run after this batch: next_position samples of next_epoch were seen by all
  // ranks together.
  int64_t next_epoch = 0;
  int64_t next_position = 0;
  // Counts of this rank in this epoch since the source was made, including this batch. A skipped
  // record lowers `valid`, but not global_valid.
  EpochCounts counts;
  // The numbers of the records in the rows that count, including skipped records. It is empty for
  // sources that do not count.
  std::span<const int64_t> records;
  // Skipped records of all ranks since the epoch began, including this batch. Set by the trainer.
  SkippedRecords all_skipped{};
};

// The work of the input so far, summed over its threads.
struct InputCounters {
  int64_t images = 0;
  int64_t read_bytes = 0;
  double read_ms = 0;     // reading records and verifying their checksums
  double parse_ms = 0;    // parsing examples
  double decode_ms = 0;   // decoding JPEG or PNG
  double augment_ms = 0;  // preprocessing
};

// A stream of batches for one rank. One thread uses it.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Returns the next batch, or nullptr at the end (evaluation ends after one pass, training never).
  // The Batch object is valid until the next call; see Batch for its memory. Blocks until the batch
  // is ready. Throws the error of a reading thread: DataError or DiskError.
  virtual const Batch* Next() = 0;

  virtual int64_t num_samples() const = 0;  // of the split, over all ranks

  // The sum that Batch::counts of all ranks must have at the end of an epoch, except for `skipped`.
  // `seen` and `hash` cover all records that were not yet seen when the source was made. `seen` is
  // 0 for sources that do not count.
  virtual EpochCounts ExpectedCounts(int64_t /*epoch*/) const { return {}; }

  // May be called from any thread. All values are 0 for sources that do not count.
  virtual InputCounters counters() const { return {}; }
};

}  // namespace carole::io
