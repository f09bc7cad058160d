// What the trainer sees of its input: batches, and where in the data the run stands.
//
// Sharing out: epoch e visits the permutation of all records that (seed, e) keys. Global batch b of
// an epoch is the next size*local_batch entries of it, and rank r takes the r-th slice of
// local_batch entries: so N ranks at local batch B see exactly what one rank sees at batch N*B, and
// each record is seen once an epoch. The last global batch of an epoch may be short: rows past the
// end have weight 0 (and repeat samples of the batch, so that batch statistics stay sensible).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace carole::io {

// Why a record was skipped: its bytes (crc, length), its example (fields, label), its image.
enum class RecordFault { kRecord, kExample, kImage };
inline constexpr int kNumRecordFaults = 3;

using SkippedRecords = std::array<int64_t, kNumRecordFaults>;

// Records of an epoch, of one rank or of all.
struct EpochCounts {
  int64_t seen = 0;  // and used
  SkippedRecords skipped{};
  // Sum of a hash of each record's number, seen or skipped: equal sums of equally many records mean
  // that they are the same ones.
  uint64_t hash = 0;

  int64_t num_skipped() const { return skipped[0] + skipped[1] + skipped[2]; }
  void Add(const EpochCounts& other) {
    seen += other.seen;
    for (size_t fault = 0; fault < skipped.size(); ++fault) skipped[fault] += other.skipped[fault];
    hash += other.hash;
  }
};

// A batch as kernels want it. Its memory belongs to the BatchSource and lasts through one more
// call of Next(): a step is begun before the last one has ended.
struct Batch {
  std::span<const float> images;    // (local_batch, height, width, channels), row-major; or
  std::span<const uint8_t> pixels;  // the same as bytes, which the net normalizes (preprocessing.h)
  std::span<const int32_t> labels;  // (local_batch)
  int64_t valid = 0;                // rows that count on this rank: the first ones
  int64_t global_valid = 0;         // rows that count over all ranks: the loss divides by it
  // Rows that count on the rank that has most of them. -1: those of rank 0, which is filled first;
  // so it is unless records were skipped.
  int64_t most_valid = -1;
  int64_t first_sample = 0;   // place in the epoch of row 0, over all ranks (keys dropout)
  int64_t epoch = 0;          // of this batch, from 0
  int64_t next_epoch = 0;     // where the run stands after this batch:
  int64_t next_position = 0;  // samples of next_epoch that all ranks together have seen
  // Of this rank and this epoch, with this batch, since the source was made. A skipped record takes
  // its row from `valid`, not from global_valid.
  EpochCounts counts;
  // Of this epoch, with this batch, over all ranks and since it began: counted by the trainer.
  SkippedRecords all_skipped{};
};

// What the input has cost so far, summed over its threads, since it was made.
struct InputCounters {
  int64_t images = 0;
  int64_t read_bytes = 0;
  double read_ms = 0;     // record bytes and their crc
  double parse_ms = 0;    // example
  double decode_ms = 0;   // JPEG, PNG
  double augment_ms = 0;  // preprocessing
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // The next batch, itself valid until the call after, or nullptr at the end (evaluation: after one
  // pass; training never ends). Blocks until it is there. Throws what the reading threads threw
  // (DataError, DiskError).
  virtual const Batch* Next() = 0;

  virtual int64_t num_samples() const = 0;  // of the split, over all ranks

  // What Batch::counts of all ranks must sum to at the end of an epoch, but for `skipped`: seen and
  // hash are of all records that were not yet seen when the source was made. seen is 0 for sources
  // that do not count.
  virtual EpochCounts ExpectedCounts(int64_t /*epoch*/) const { return {}; }

  // Thread-safe. All zero for sources that do not count.
  virtual InputCounters counters() const { return {}; }
};

}  // namespace carole::io
