#include "io/pipeline.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "io/record_index.h"
#include "io/sample_reader.h"
#include "io/sharding.h"
#include "src/core/check.h"
#include "src/core/log.h"

namespace carole::io {
namespace {

// A batch of the ring. Planned by the consumer, filled by the threads, read by the consumer, in
// turn.
struct Slot {
  std::vector<float> images;
  std::vector<int32_t> labels;
  std::vector<int64_t> records;  // the plan: record of each row
  Batch batch;
  std::atomic<int64_t> rows_left{0};
  // Of the first row that failed, so that it does not depend on the threads.
  std::exception_ptr error;
  int64_t error_row = std::numeric_limits<int64_t>::max();
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
        next_plan_{options.start_epoch, options.start_position},
        slots_(static_cast<size_t>(options.depth)) {
    for (Slot& slot : slots_) {
      slot.images.resize(static_cast<size_t>(options.local_batch * reader_.image_values()));
      slot.labels.resize(static_cast<size_t>(options.local_batch));
      slot.records.resize(static_cast<size_t>(options.local_batch));
    }
    if (next_plan_.position == sharing_.num_records) next_plan_ = {next_plan_.epoch + 1, 0};
    CAROLE_CHECK(next_plan_.position >= 0 && next_plan_.position < sharing_.num_records,
                 "start at {} in an epoch of {}", next_plan_.position, sharing_.num_records);
    for (int i = 0; i < options.depth; ++i) Plan();
    for (int t = 0; t < options.threads; ++t) {
      threads_.emplace_back([this](const std::stop_token& stop) { Work(stop); });
    }
  }

  ~Pipeline() override {
    for (std::jthread& thread : threads_) thread.request_stop();  // wakes those that wait
  }

  const Batch* Next() override {
    if (next_batch_ > 0 && !failed_) Plan();  // the batch given last is given back
    if (next_batch_ == planned_.load()) return nullptr;
    Slot& slot = slots_[next_batch_ % slots_.size()];
    const auto start = std::chrono::steady_clock::now();
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [&] { return slot.rows_left.load() == 0; });
    }
    counters_.wait_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    if (slot.error) {
      failed_ = true;  // stay at this batch: it throws again
      std::rethrow_exception(slot.error);
    }
    ++next_batch_;
    return &slot.batch;
  }

  int64_t num_samples() const override { return reader_.num_records(); }
  InputCounters counters() const override { return counters_.ToCounters(); }

 private:
  // Plans the next batch of the run into the next slot, which must be free. Does nothing after the
  // end of one pass.
  void Plan() {
    if (!options_.repeat && next_plan_.epoch != options_.start_epoch) return;
    if (!order_ || order_epoch_ != next_plan_.epoch) {
      order_.emplace(sharing_.num_records, options_.shuffle, options_.seed, next_plan_.epoch);
      order_epoch_ = next_plan_.epoch;
    }
    const BatchShare share = ShareOf(sharing_, next_plan_.epoch, next_plan_.position);
    next_plan_ = After(sharing_, share);
    Slot& slot = slots_[planned_.load() % slots_.size()];
    for (int64_t row = 0; row < options_.local_batch; ++row)
      slot.records[row] = (*order_)[share.PlaceOf(row)];
    slot.batch = {.images = slot.images,
                  .labels = slot.labels,
                  .valid = share.valid,
                  .global_valid = share.global_valid,
                  .first_sample = share.first,
                  .epoch = share.epoch,
                  .next_epoch = next_plan_.epoch,
                  .next_position = next_plan_.position};
    slot.rows_left = options_.local_batch;
    {
      const std::lock_guard lock(mutex_);
      ++planned_;
    }
    planned_more_.notify_all();
  }

  void Work(const std::stop_token& stop) {
    SampleReader::Scratch scratch;
    while (!stop.stop_requested()) {
      const int64_t ticket = next_row_.fetch_add(1);
      const int64_t batch = ticket / options_.local_batch;
      if (batch >= planned_.load()) {
        std::unique_lock lock(mutex_);
        if (!planned_more_.wait(lock, stop, [&] { return batch < planned_.load(); })) return;
      }
      FillRow(slots_[batch % slots_.size()], ticket % options_.local_batch, scratch);
    }
  }

  void FillRow(Slot& slot, int64_t row, SampleReader::Scratch& scratch) {
    const auto values = static_cast<size_t>(reader_.image_values());
    try {
      reader_.Read(slot.records[row], slot.batch.epoch, scratch,
                   std::span(slot.images).subspan(row * values, values), &slot.labels[row],
                   counters_);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (row < slot.error_row) slot.error = std::current_exception();
      slot.error_row = std::min(slot.error_row, row);
    }
    if (slot.rows_left.fetch_sub(1) == 1) {
      const std::lock_guard lock(mutex_);  // the consumer may stand between its test and its wait
      ready_.notify_one();
    }
  }

  const PipelineOptions options_;
  const SampleReader reader_;
  const Sharing sharing_;
  StageCounters counters_;

  // The consumer's own.
  DataPosition next_plan_;
  std::optional<EpochOrder> order_;
  int64_t order_epoch_ = -1;
  int64_t next_batch_ = 0;  // that Next() gives, counted from the start of this pipeline
  bool failed_ = false;

  std::vector<Slot> slots_;
  std::atomic<int64_t> planned_{0};   // batches
  std::atomic<int64_t> next_row_{0};  // over all batches, to be claimed
  std::mutex mutex_;
  std::condition_variable_any planned_more_;
  std::condition_variable ready_;
  std::vector<std::jthread> threads_;  // last: ends before what it uses
};

void CheckOptions(const PipelineOptions& options) {
  CAROLE_CHECK(options.dataset != nullptr, "a pipeline of no dataset");
  CAROLE_CHECK(options.local_batch > 0 && options.threads > 0 && options.depth > 0,
               "a pipeline of batches of {}, {} threads, {} deep", options.local_batch,
               options.threads, options.depth);
  CAROLE_CHECK(options.height > 0 && options.width > 0 && options.num_classes > 0,
               "a pipeline of {}x{} images in {} classes", options.height, options.width,
               options.num_classes);
  CAROLE_CHECK(options.channels == 1 || options.channels == 3, "a pipeline of {} channels",
               options.channels);
}

}  // namespace

std::unique_ptr<BatchSource> MakePipeline(const PipelineOptions& options) {
  CheckOptions(options);
  const PreprocessingEntry& preprocessing = FindPreprocessing(options.preprocessing);
  RecordIndex index =
      LoadRecordIndex({.shards = FindShards(*options.dataset, options.split, options.dataset_dir),
                       .work_dir = options.work_dir,
                       .threads = options.threads});
  const int64_t full = FindSplit(*options.dataset, options.split).num_samples;
  if (index.num_records() != full) {
    LogInfo("io.pipeline", "{} {}: {} records; the full data set has {}", options.dataset->name,
            options.split, index.num_records(), full);
  }
  SampleReader reader({.dataset = options.dataset,
                       .preprocess = options.training ? preprocessing.train : preprocessing.eval,
                       .height = options.height,
                       .width = options.width,
                       .channels = options.channels,
                       .labels_offset = options.labels_offset,
                       .num_classes = options.num_classes,
                       .seed = options.seed},
                      std::move(index));
  return std::make_unique<Pipeline>(options, std::move(reader));
}

}  // namespace carole::io
