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

// A batch of the ring. Planned by the consumer, filled by the threads, read by the consumer, in
// turn.
struct Slot {
  std::vector<float> images;    // or
  std::vector<uint8_t> pixels;  // these
  std::vector<int32_t> labels;
  std::vector<int64_t> records;  // the plan: record of each row
  Batch batch;
  std::atomic<int64_t> rows_left{0};
  std::vector<std::pair<int64_t, std::exception_ptr>> failures;  // of rows, in no order
};

// Of a record's number, for EpochCounts::hash.
uint64_t HashOf(int64_t record) { return SplitMix64(static_cast<uint64_t>(record)); }

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
      const auto values = static_cast<size_t>(options.local_batch * reader_.image_values());
      slot.images.resize(options.dtype == DType::kU8 ? 0 : values);
      slot.pixels.resize(options.dtype == DType::kU8 ? values : 0);
      slot.labels.resize(static_cast<size_t>(options.local_batch));
      slot.records.resize(static_cast<size_t>(options.local_batch));
    }
    if (next_plan_.position >= sharing_.num_records) next_plan_ = {next_plan_.epoch + 1, 0};
    start_ = next_plan_;
    if (order_options_.shuffle && order_options_.block_records > 0)
      read_ahead_ = std::make_unique<ReadAhead>(reader_);
    CAROLE_CHECK(next_plan_.position >= 0, "start at {} in an epoch", next_plan_.position);
    for (size_t i = 0; i < slots_.size(); ++i) Plan();
    for (int t = 0; t < options.threads; ++t) {
      threads_.emplace_back([this](const std::stop_token& stop) { Work(stop); });
    }
  }

  ~Pipeline() override {
    for (std::jthread& thread : threads_) thread.request_stop();  // wakes those that wait
  }

  const Batch* Next() override {
    if (failure_) std::rethrow_exception(failure_);
    if (next_batch_ > 1) Plan();  // the last batch but one is given back
    if (next_batch_ == planned_.load()) return nullptr;
    Slot& slot = slots_[next_batch_ % slots_.size()];
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [&] { return slot.rows_left.load() == 0; });
    }
    try {
      Settle(slot);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
    ++next_batch_;
    return &slot.batch;
  }

  // All records, less those that came before the place where this pipeline began.
  EpochCounts ExpectedCounts(int64_t epoch) const override {
    EpochCounts counts{.seen = sharing_.num_records};
    for (int64_t record = 0; record < sharing_.num_records; ++record) counts.hash += HashOf(record);
    if (epoch != start_.epoch || start_.position == 0) return counts;
    const EpochOrder order(sharing_.num_records, order_options_, epoch);
    for (int64_t place = 0; place < start_.position; ++place) counts.hash -= HashOf(order[place]);
    counts.seen -= start_.position;
    return counts;
  }

  int64_t num_samples() const override { return reader_.num_records(); }
  InputCounters counters() const override { return counters_.ToCounters(); }

 private:
  // Plans the next batch of the run into the next slot, which must be free. Does nothing after the
  // end of one pass.
  void Plan() {
    if (!options_.repeat && next_plan_.epoch != options_.start_epoch) return;
    if (!order_ || order_epoch_ != next_plan_.epoch) {
      order_.emplace(sharing_.num_records, order_options_, next_plan_.epoch);
      order_epoch_ = next_plan_.epoch;
    }
    if (read_ahead_) AskAhead();
    const BatchShare share = ShareOf(sharing_, next_plan_.epoch, next_plan_.position);
    next_plan_ = After(sharing_, share);
    Slot& slot = slots_[planned_.load() % slots_.size()];
    for (int64_t row = 0; row < options_.local_batch; ++row)
      slot.records[row] = (*order_)[share.PlaceOf(row)];
    slot.batch = {.images = slot.images,
                  .pixels = slot.pixels,
                  .labels = slot.labels,
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
      ++planned_;
    }
    planned_more_.notify_all();
  }

  // Asks for this rank's records of the next window of a block shuffle.
  void AskAhead() {
    const int64_t window = order_options_.window_records();
    if (ahead_.epoch != next_plan_.epoch) ahead_ = next_plan_;
    while (ahead_.epoch == next_plan_.epoch && ahead_.position < next_plan_.position + window) {
      std::vector<int64_t> records;
      const int64_t end = ahead_.position + window;
      while (ahead_.epoch == next_plan_.epoch && ahead_.position < end) {
        const BatchShare share = ShareOf(sharing_, ahead_.epoch, ahead_.position);
        for (int64_t row = 0; row < share.valid; ++row)
          records.push_back((*order_)[share.PlaceOf(row)]);
        ahead_ = After(sharing_, share);
      }
      read_ahead_->Ask(std::move(records));
    }
  }

  // Counts the records of a finished batch and takes out those that failed, or throws the first
  // failure when it may not be skipped.
  void Settle(Slot& slot) {
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
        if (row < planned) Skip(bad);  // rows behind repeat records that count elsewhere
      }
    }
    for (int64_t row = 0; row < planned; ++row) counts_.hash += HashOf(slot.records[row]);
    for (auto failure = slot.failures.rbegin(); failure != slot.failures.rend(); ++failure)
      if (failure->first < planned) RemoveRow(slot, failure->first);
    counts_.seen += batch.valid;
    batch.counts = counts_;
  }

  void Skip(const BadRecordError& bad) {
    ++counts_.skipped[static_cast<int>(bad.fault())];
    if (counts_.num_skipped() > options_.max_bad_records) {
      throw DataError(fmt::format("{}; this is bad record {} of the epoch, --max_bad_records={}",
                                  bad.what(), counts_.num_skipped(), options_.max_bad_records));
    }
    LogWarning("io.pipeline", "skipped: {}", WithoutTag(bad.what()));
  }

  // The last row that counts takes its place.
  void RemoveRow(Slot& slot, int64_t row) {
    const int64_t last = --slot.batch.valid;
    const int64_t values = reader_.image_values();
    const auto move = [&](auto& images) {
      if (row != last && !images.empty())
        std::copy_n(images.begin() + last * values, values, images.begin() + row * values);
    };
    move(slot.images);
    move(slot.pixels);
    slot.labels[row] = slot.labels[last];
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
    const auto read = [&](auto& images) {
      reader_.Read(slot.records[row], slot.batch.epoch, scratch,
                   std::span(images).subspan(row * values, values), &slot.labels[row], counters_);
    };
    try {
      if (options_.dtype == DType::kU8) {
        read(slot.pixels);
      } else {
        read(slot.images);
      }
    } catch (...) {
      slot.labels[row] = 0;
      const std::lock_guard lock(mutex_);
      slot.failures.emplace_back(row, std::current_exception());
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
  const OrderOptions order_options_;
  DataPosition next_plan_;
  DataPosition start_;
  DataPosition ahead_{-1, 0};  // what has been asked for of a block shuffle
  std::optional<EpochOrder> order_;
  int64_t order_epoch_ = -1;
  int64_t next_batch_ = 0;      // that Next() gives, counted from the start of this pipeline
  std::exception_ptr failure_;  // given once, given again
  EpochCounts counts_;          // of the batches given of counts_epoch_
  int64_t counts_epoch_ = -1;

  std::unique_ptr<ReadAhead> read_ahead_;
  std::vector<Slot> slots_;
  std::atomic<int64_t> planned_{0};   // batches
  std::atomic<int64_t> next_row_{0};  // over all batches, to be claimed
  std::mutex mutex_;
  std::condition_variable_any planned_more_;
  std::condition_variable ready_;
  std::vector<std::jthread> threads_;  // last: ends before what it uses
};

void CheckOptions(const PipelineOptions& options) {
  CAROLE_CHECK(options.dataset != nullptr && options.preprocessing != nullptr,
               "a pipeline of no dataset or preprocessing");
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
