#include "io/records/shard_writer.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "io/records/shard_name.h"
#include "io/records/tfrecord.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/files/run_lock.h"
#include "src/core/log.h"
#include "src/core/parallel.h"

namespace carole::io {
namespace {

namespace fs = std::filesystem;

// Beside the shards lies the recipe they were made by; what differs is not finished but refused.
fs::path RecipePath(const ShardPlan& plan) {
  const size_t separator = plan.is_one_file ? 0 : 1;
  const std::string_view name = std::string_view(plan.stem).substr(0, plan.stem.size() - separator);
  return plan.folder / fmt::format(".carole_build_{}", name);
}

// Examples that could not be made.
class BadExamples {
 public:
  explicit BadExamples(int64_t most) : most_(most) {}

  void Add(const DataError& error) {
    LogError("", "{}", error.what());
    const std::lock_guard lock(mutex_);
    if (count_++ == 0) first_ = error.what();
  }
  bool AreTooMany() const { return count_ > most_; }
  void RequireFew() const {
    if (AreTooMany())
      throw DataError(fmt::format(
          "{}; it is the first of {} that could not be made: mend them, or leave out as many by "
          "--max_bad_records",
          first_, count_.load()));
    if (count_ > 0)
      LogWarning("io.build", "{} examples are left out (--max_bad_records)", count_.load());
  }

 private:
  const int64_t most_;
  std::atomic<int64_t> count_{0};
  std::mutex mutex_;
  std::string first_;
};

std::string RecipeLine(const ShardPlan& plan) { return plan.recipe + "\n"; }

// A shard of another number of shards would be read beside ours.
bool HasShards(const ShardPlan& plan) {
  if (plan.is_one_file || !fs::exists(plan.folder)) return fs::exists(ShardPath(plan, 0));
  for (const auto& file : fs::directory_iterator(plan.folder)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with(plan.stem) && name.find("-of-") != std::string::npos) return true;
  }
  return false;
}

std::vector<int> MissingShards(const ShardPlan& plan) {
  std::vector<int> missing;
  for (int s = 0; s < plan.num_shards(); ++s) {
    if (plan.count(s) == 0) {
      throw UsageError(
          fmt::format("[io.build] {}: more shards than images: got {} images for {} shards; use "
                      "fewer --train_shards or --validation_shards",
                      ShardPath(plan, s).string(), plan.starts.back(), plan.num_shards()));
    }
    if (!fs::exists(ShardPath(plan, s))) missing.push_back(s);
  }
  return missing;
}

// Counts in `done` what it tried.
void WriteShard(const ShardPlan& plan, int shard, const std::function<std::string(int64_t)>& make,
                BadExamples& bad, std::atomic<int64_t>& done) {
  const std::unique_ptr<Sink> sink = CreateFile(ShardPath(plan, shard));
  TfRecordWriter writer(*sink);
  int64_t num_bad = 0;
  for (int64_t k = plan.starts[shard]; k < plan.starts[shard + 1]; ++k) {
    try {
      writer.Write(make(k));
    } catch (const DataError& error) {
      bad.Add(error);
      ++num_bad;
    }
    ++done;
  }
  if (num_bad > 0 && bad.AreTooMany()) return;
  if (num_bad == plan.count(shard)) {
    throw DataError(fmt::format("[io.build] {}: nothing in it could be made; use fewer shards",
                                ShardPath(plan, shard).string()));
  }
  sink->Commit();
}

}  // namespace

fs::path ShardPath(const ShardPlan& plan, int shard) {
  if (plan.is_one_file) return plan.folder / plan.stem;
  const ShardName name{plan.stem, shard, plan.num_shards(), plan.suffix};
  return plan.folder / name.ToString();
}

std::vector<int64_t> LinearParts(int64_t first, int64_t last, int count) {
  const double step = static_cast<double>(last - first) / count;
  std::vector<int64_t> bounds;
  for (int i = 0; i < count; ++i)
    bounds.push_back(static_cast<int64_t>(i * step + static_cast<double>(first)));
  bounds.push_back(last);
  return bounds;
}

std::vector<int64_t> ShardStarts(int64_t count, int num_shards) {
  constexpr int kThreads = 8;
  if (num_shards % kThreads != 0) return LinearParts(0, count, num_shards);
  const std::vector<int64_t> parts = LinearParts(0, count, kThreads);
  std::vector<int64_t> starts = {0};
  for (int t = 0; t < kThreads; ++t) {
    const auto bounds = LinearParts(parts[t], parts[t + 1], num_shards / kThreads);
    starts.insert(starts.end(), bounds.begin() + 1, bounds.end());
  }
  return starts;
}

void CheckShards(const ShardPlan& plan) {
  constexpr uint64_t kMaxRecipeBytes = 1 << 20;
  if (!HasShards(plan)) return;
  const fs::path path = RecipePath(plan);
  if (fs::exists(path) && ReadAll(*OpenFile(path), kMaxRecipeBytes) == RecipeLine(plan)) return;
  throw UsageError(
      fmt::format("[io.build] {}: holds {}{} of another build: got shards that were not made by "
                  "'{}'; remove them or choose another --dataset_dir",
                  plan.folder.string(), plan.stem, plan.is_one_file ? "" : "*", plan.recipe));
}

void WriteShards(const ShardPlan& plan, const std::function<std::string(int64_t)>& make) {
  MakeFolder("io.build", plan.folder.string());
  // Two jobs may find the same raw files: the second then finds the shards of the first.
  const RunLock lock(plan.folder.string(), RunLock::OnConflict::kWait);
  RemoveLeftovers(plan.folder, plan.stem);
  CheckShards(plan);
  WriteWholeFile(RecipePath(plan), RecipeLine(plan));
  const std::vector<int> missing = MissingShards(plan);
  std::atomic<int64_t> done = plan.starts.back();
  for (int shard : missing) done -= plan.count(shard);
  BadExamples bad(plan.max_bad);
  const auto write = [&](int64_t i) {
    WriteShard(plan, missing[static_cast<size_t>(i)], make, bad, done);
  };
  const auto report = [&] {
    if (plan.progress) plan.progress(done, plan.starts.back());
  };
  report();
  ParallelFor(static_cast<int64_t>(missing.size()), plan.threads, write, report);
  bad.RequireFew();
}

}  // namespace carole::io
