// Turns shards into batches: threads read, decode and preprocess ahead of the trainer.
//
// The task
//
// The trainer asks for batch after batch and should never wait. Decoding takes much longer for a
// large photo than for a small one, so threads must share the work evenly. The batches must be the
// same, bit for bit, for any number of threads. A run must be able to start at any position. Memory
// must stay bounded, and bad records must be skipped or reported with their location.
//
// The ring of slots
//
// A slot holds one batch: images (or pixels), labels, and the plan, which is the record number of
// each row. There are depth + 1 slots; batch b lives in slot b % (depth + 1). All memory is
// allocated once. A slot goes through five phases:
//
//   1. Planned (consumer, Plan()): the records of all rows are written, and planned_ is
//      incremented.
//   2. Filled (threads, FillRow()): each row is read, decoded and preprocessed into its place.
//   3. Transformed (the thread that filled the last row): batch transforms, if there are any.
//   4. Finished (consumer, FinishBatch()): failed rows are removed or thrown, and records are
//      counted. A batch with failures is transformed only now, without the failed rows.
//   5. In use (trainer): until the second call of Next() after the one that returned it, because a
//      step is launched before the previous one has ended. Then the slot is planned again.
//
// The consumer is the thread that calls Next(). Only it plans, so the plan needs no lock.
//
// Tickets
//
// All threads draw tickets from one atomic counter, next_row_. Ticket t means row t % local_batch
// of batch t / local_batch. So all threads work on the oldest unfinished batch first, and a thread
// that got a small image simply takes the next ticket. Handing whole batches to threads would be
// simpler. But then the first batch would take as long as one thread needs for all of its rows. The
// counter is the only thing that threads share while there is work. The mutex is for sleeping,
// waking, and recording failures.
//
// Example: local_batch 4, depth 4, so 5 slots, and 2 threads A and B. The constructor plans batches
// 0 to 4.
//
//   ticket  0 1 2 3 | 4 5 6 7 | ...  | 16 .. 19 | 20
//   batch   0       | 1       |      | 4        | 5
//   slot    0       | 1       |      | 4        | 0
//   thread  A B A B | B A A B |      | ...      | A waits until planned_ > 5
//
// Ticket 20 belongs to batch 5, whose slot 0 is still in use. The first two calls of Next() return
// batches 0 and 1 and plan nothing. The third call knows that the trainer is done with batch 0. It
// plans batch 5 into slot 0, wakes A, and returns batch 2. While the trainer holds batches 1 and 2,
// the threads work on 3, 4 and 5.
//
// The thread that finishes the last row of a batch wakes the consumer.
//
// Why the number of threads changes nothing
//
//   - The plan depends only on (seed, epoch, position, rank, size); see sharding.h.
//   - The random numbers of a row depend only on (seed, epoch, record).
//   - Each row is written to its own place, whichever thread computes it.
//   - Failures arrive in any order. They are sorted by row before any is counted, skipped or
//     thrown.
//
// The number of ranks changes only which rank and row a record goes to.
//
// Bad records
//
// A failure is kept with its row and handled when its batch is finished, never earlier. So the
// error arrives at the same batch for any number of threads. With max_bad_records = 0 the first
// failed row is thrown, and every later call of Next() throws it again. Otherwise the last valid
// row moves to the place of the failed one, and `valid` decreases by one. Rows at the end of a
// short batch only repeat records that count elsewhere. If such a row fails, nothing is counted.
//
// Block shuffle
//
// With shuffle_block_records > 0 the records of a window lie in few long blocks (sharding.h).
// Plan() passes the records of the next window to ReadAhead, whose thread asks the operating system
// to read them. So a slow disk reads long blocks before the threads need them.
#include "io/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "io/pipeline/read_ahead.h"
#include "io/pipeline/sample_reader.h"
#include "io/preprocessing/preprocessing.h"
#include "io/records/record_index.h"
#include "io/records/sharding.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/rng.h"

namespace carole::io {
namespace {

// One batch of the ring.
struct Slot {
  std::vector<float> images;    // empty if the batch has pixels
  std::vector<uint8_t> pixels;  // empty if the batch has images
  std::vector<int32_t> labels;
  std::vector<float> soft_labels;  // empty if no batch transform is active
  std::vector<int64_t> records;    // the plan: the record number of each row
  Batch batch;
  std::atomic<int64_t> rows_left{0};                             // rows that are not filled yet
  bool is_filled = false;                                        // phase 4 may begin
  std::vector<std::pair<int64_t, std::exception_ptr>> failures;  // (row, error), unordered
};

class Pipeline : public BatchSource {
 public:
  Pipeline(const PipelineOptions& options, SampleReader reader)
      : options_(options),
        reader_(std::move(reader)),
        sharing_{.num_records = reader_.num_records(),
                 .local_batch = options.local_batch,
                 .rank = options.rank,
                 .size = options.size},
        order_options_{.shuffle = options.shuffle,
                       .block_records = options.shuffle_block_records,
                       .seed = options.seed},
        next_plan_{options.start_epoch, options.start_position},
        slots_(static_cast<size_t>(options.depth) + 1) {
    for (Slot& slot : slots_) {
      const auto values = static_cast<size_t>(options.local_batch * reader_.values_per_image());
      slot.images.resize(options.dtype == DType::kU8 ? 0 : values);
      slot.pixels.resize(options.dtype == DType::kU8 ? values : 0);
      slot.labels.resize(static_cast<size_t>(options.local_batch));
      slot.records.resize(static_cast<size_t>(options.local_batch));
      if (!options.augmentations.batches.empty())
        slot.soft_labels.resize(static_cast<size_t>(options.local_batch * options.num_classes));
    }
    if (next_plan_.position >= sharing_.num_records) next_plan_ = {next_plan_.epoch + 1, 0};
    start_ = next_plan_;
    if (order_options_.shuffle && order_options_.block_records > 0)
      read_ahead_ = std::make_unique<ReadAhead>(reader_);
    CAROLE_CHECK(next_plan_.position >= 0, "pipeline: negative start position {}",
                 next_plan_.position);
    for (size_t i = 0; i < slots_.size(); ++i) Plan();
    for (int t = 0; t < options.threads; ++t) {
      threads_.emplace_back([this](const std::stop_token& stop) { Work(stop); });
    }
  }

  ~Pipeline() override {
    for (std::jthread& thread : threads_) thread.request_stop();  // also wakes waiting threads
  }

  const Batch* Next() override {
    if (failure_) std::rethrow_exception(failure_);
    if (next_batch_ > 1) Plan();  // into the slot of the batch before the last one
    if (next_batch_ == planned_.load()) return nullptr;
    Slot& slot = slots_[next_batch_ % slots_.size()];
    {
      std::unique_lock lock(mutex_);
      batch_filled_.wait(lock, [&] { return slot.is_filled; });
    }
    try {
      FinishBatch(slot);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
    ++next_batch_;
    return &slot.batch;
  }

  EpochCounts ExpectedCounts(int64_t epoch) const override {
    EpochCounts counts{.seen = sharing_.num_records};
    for (int64_t record = 0; record < sharing_.num_records; ++record)
      counts.hash += reader_.HashOf(record);
    if (epoch != start_.epoch || start_.position == 0) return counts;
    const EpochOrder order(sharing_.num_records, order_options_, epoch);
    for (int64_t i = 0; i < start_.position; ++i) counts.hash -= reader_.HashOf(order[i]);
    counts.seen -= start_.position;
    return counts;
  }

  int64_t num_samples() const override { return reader_.num_records(); }
  InputCounters counters() const override { return counters_.ToCounters(); }

 private:
  // Plans the next batch of the run into the next slot, which must be free. Does nothing if the
  // pipeline makes a single pass and all of its batches are planned.
  void Plan() {
    if (!options_.repeat && next_plan_.epoch != options_.start_epoch) return;
    if (!order_ || order_epoch_ != next_plan_.epoch) {
      order_.emplace(sharing_.num_records, order_options_, next_plan_.epoch);
      order_epoch_ = next_plan_.epoch;
    }
    if (read_ahead_) PrefetchNextWindow();
    const BatchShare share = ShareOf(sharing_, next_plan_.epoch, next_plan_.position);
    next_plan_ = PositionAfter(sharing_, share);
    Slot& slot = slots_[planned_.load() % slots_.size()];
    for (int64_t row = 0; row < options_.local_batch; ++row)
      slot.records[row] = (*order_)[share.PositionOf(row)];
    slot.batch = {.images = slot.images,
                  .pixels = slot.pixels,
                  .labels = slot.labels,
                  .soft_labels = slot.soft_labels,
                  .valid = share.valid,
                  .global_valid = share.global_valid,
                  .first_sample = share.first,
                  .epoch = share.epoch,
                  .next_epoch = next_plan_.epoch,
                  .next_position = next_plan_.position};
    slot.failures.clear();
    slot.rows_left = options_.local_batch;
    {
      const std::lock_guard lock(mutex_);
      slot.is_filled = false;
      ++planned_;
    }
    batch_planned_.notify_all();
  }

  // Prefetches this rank's records up to one window of the block shuffle ahead of the plan.
  void PrefetchNextWindow() {
    const int64_t window = order_options_.window_records();
    if (prefetched_.epoch != next_plan_.epoch) prefetched_ = next_plan_;
    while (prefetched_.epoch == next_plan_.epoch &&
           prefetched_.position < next_plan_.position + window) {
      std::vector<int64_t> records;
      const int64_t end = prefetched_.position + window;
      while (prefetched_.epoch == next_plan_.epoch && prefetched_.position < end) {
        const BatchShare share = ShareOf(sharing_, prefetched_.epoch, prefetched_.position);
        for (int64_t row = 0; row < share.valid; ++row)
          records.push_back((*order_)[share.PositionOf(row)]);
        prefetched_ = PositionAfter(sharing_, share);
      }
      read_ahead_->Prefetch(std::move(records));
    }
  }

  // Counts the records of a filled batch and removes the rows that failed. Throws the first failure
  // that may not be skipped.
  void FinishBatch(Slot& slot) {
    Batch& batch = slot.batch;
    if (batch.epoch != counts_epoch_) counts_ = {};
    counts_epoch_ = batch.epoch;
    std::sort(slot.failures.begin(), slot.failures.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    const int64_t planned = batch.valid;
    for (const auto& [row, error] : slot.failures) {
      try {
        std::rethrow_exception(error);
      } catch (const BadRecordError& bad) {
        if (options_.max_bad_records == 0) throw;
        if (row < planned) Skip(bad);  // later rows repeat records that count elsewhere
      }
    }
    batch.records = std::span(slot.records).first(static_cast<size_t>(planned));
    for (const int64_t record : batch.records) counts_.hash += reader_.HashOf(record);
    for (auto failure = slot.failures.rbegin(); failure != slot.failures.rend(); ++failure)
      if (failure->first < planned) RemoveRow(slot, failure->first);
    if (!slot.failures.empty()) {
      // Batch norm and transforms use all rows, so the others must hold something sensible, too.
      for (int64_t row = batch.valid; row < options_.local_batch; ++row) CopyRow(slot, 0, row);
      Transform(slot);
    }
    counts_.seen += batch.valid;
    batch.counts = counts_;
  }

  void Skip(const BadRecordError& bad) {
    ++counts_.skipped[static_cast<int>(bad.fault())];
    if (counts_.num_skipped() > options_.max_bad_records) {
      throw DataError(fmt::format(
          "{}; this is bad record {} of the epoch, {}", bad.what(), counts_.num_skipped(),
          Option("max_bad_records", std::to_string(options_.max_bad_records))));
    }
    LogWarning("io.pipeline", "skipped: {}", WithoutTag(bad.what()));
  }

  // Replaces a row by the last valid row, which then is no longer valid.
  void RemoveRow(Slot& slot, int64_t row) { CopyRow(slot, --slot.batch.valid, row); }

  void CopyRow(Slot& slot, int64_t from, int64_t to) const {
    const int64_t values = reader_.values_per_image();
    const auto copy = [&](auto& images) {
      if (from != to && !images.empty())
        std::copy_n(images.begin() + from * values, values, images.begin() + to * values);
    };
    copy(slot.images);
    copy(slot.pixels);
    slot.labels[to] = slot.labels[from];
  }

  // Applies the batch transforms. The result does not depend on the thread, nor on when it is
  // called.
  void Transform(Slot& slot) const {
    if (slot.soft_labels.empty()) return;
    std::ranges::fill(slot.soft_labels, 0.0f);
    for (int64_t row = 0; row < options_.local_batch; ++row)
      slot.soft_labels[row * options_.num_classes + slot.labels[row]] = 1;
    for (const auto& [name, transform] : options_.augmentations.batches) {
      Rng rng = AugmentationRng(options_.seed, name, slot.batch.epoch, slot.batch.first_sample);
      transform->Apply({.images = slot.images,
                        .soft_labels = slot.soft_labels,
                        .rows = options_.local_batch,
                        .height = options_.height,
                        .width = options_.width,
                        .rng = rng});
    }
  }

  // The loop of a thread: claims and fills row after row.
  void Work(const std::stop_token& stop) {
    SampleReader::Scratch scratch;
    while (!stop.stop_requested()) {
      const int64_t ticket = next_row_.fetch_add(1);
      const int64_t batch = ticket / options_.local_batch;
      if (batch >= planned_.load()) {
        std::unique_lock lock(mutex_);
        if (!batch_planned_.wait(lock, stop, [&] { return batch < planned_.load(); })) return;
      }
      FillRow(slots_[batch % slots_.size()], ticket % options_.local_batch, scratch);
    }
  }

  void FillRow(Slot& slot, int64_t row, SampleReader::Scratch& scratch) {
    const auto values = static_cast<size_t>(reader_.values_per_image());
    const auto read = [&](auto& images) {
      const auto image = std::span(images).subspan(row * values, values);
      try {
        reader_.Read(slot.records[row], slot.batch.epoch, scratch, image, &slot.labels[row],
                     counters_);
      } catch (...) {
        std::ranges::fill(image, 0);  // it holds an image of an earlier batch
        slot.labels[row] = 0;
        const std::lock_guard lock(mutex_);
        slot.failures.emplace_back(row, std::current_exception());
      }
    };
    if (options_.dtype == DType::kU8) {
      read(slot.pixels);
    } else {
      read(slot.images);
    }
    if (slot.rows_left.fetch_sub(1) == 1) {
      if (slot.failures.empty()) Transform(slot);
      const std::lock_guard lock(mutex_);
      slot.is_filled = true;
      batch_filled_.notify_one();
    }
  }

  const PipelineOptions options_;
  const SampleReader reader_;
  const Sharing sharing_;
  StageCounters counters_;

  // Used by the consumer only.
  const OrderOptions order_options_;
  DataPosition next_plan_;           // where the next batch to be planned begins
  DataPosition start_;               // where the first batch began
  DataPosition prefetched_{-1, 0};   // block shuffle: records before this were prefetched
  std::optional<EpochOrder> order_;  // of order_epoch_
  int64_t order_epoch_ = -1;
  int64_t next_batch_ = 0;      // number of the batch that Next() returns next; the first is 0
  std::exception_ptr failure_;  // thrown once; later calls of Next() throw it again
  EpochCounts counts_;          // of the batches of counts_epoch_ that Next() returned
  int64_t counts_epoch_ = -1;

  std::unique_ptr<ReadAhead> read_ahead_;
  std::vector<Slot> slots_;
  std::atomic<int64_t> planned_{0};   // number of batches planned so far
  std::atomic<int64_t> next_row_{0};  // the next ticket
  std::mutex mutex_;
  std::condition_variable_any batch_planned_;
  std::condition_variable batch_filled_;
  std::vector<std::jthread> threads_;  // last member: threads end before what they use
};

void CheckOptions(const PipelineOptions& options) {
  CAROLE_CHECK(options.dataset != nullptr && options.preprocessing != nullptr,
               "pipeline: dataset or preprocessing is not set");
  CAROLE_CHECK(options.local_batch > 0 && options.threads > 0 && options.depth > 0,
               "a pipeline of batches of {}, {} threads, {} deep", options.local_batch,
               options.threads, options.depth);
  CAROLE_CHECK(options.height > 0 && options.width > 0 && options.num_classes > 0,
               "a pipeline of {}x{} images in {} classes", options.height, options.width,
               options.num_classes);
  CAROLE_CHECK(options.channels == 1 || options.channels == 3, "a pipeline of {} channels",
               options.channels);
  CAROLE_CHECK(options.augmentations.empty() || options.training,
               "augmentations of an evaluation: {}", options.augmentations.Describe());
  CAROLE_CHECK(options.augmentations.batches.empty() || options.dtype == DType::kF32,
               "transforms of batches of {}", Name(options.dtype));
}

}  // namespace

std::unique_ptr<BatchSource> MakePipeline(const PipelineOptions& options) {
  CheckOptions(options);
  CheckPreprocessingSize(*options.preprocessing, options.height, options.width);
  if (options.dtype == DType::kU8) NormalizationOf(*options.preprocessing);
  RecordIndex index =
      LoadRecordIndex({.shards = FindShards(*options.dataset, options.split, options.dataset_dir),
                       .work_dir = options.work_dir,
                       .threads = options.threads,
                       .skip_damage = options.max_bad_records > 0});
  const int64_t full = FindSplit(*options.dataset, options.split).num_samples;
  if (full > 0 && index.num_records() != full) {
    LogInfo("io.pipeline", "{} {}: {} records; the full data set has {}", options.dataset->name,
            options.split, index.num_records(), full);
  }
  SampleOptions sample = options;
  sample.random_order = options.shuffle && options.shuffle_block_records == 0;
  SampleReader reader(sample, std::move(index));
  return std::make_unique<Pipeline>(options, std::move(reader));
}

}  // namespace carole::io
