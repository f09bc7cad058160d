#include "io/records/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>

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

// The file with the build's description, next to the shards. A build only adds to shards of the
// same description; it refuses all others.
fs::path DescriptionPath(const ShardPlan& plan) {
  const size_t separator = plan.is_single_file ? 0 : 1;
  const std::string_view name = std::string_view(plan.stem).substr(0, plan.stem.size() - separator);
  return plan.folder / fmt::format(".carole_build_{}", name);
}

// Logs and counts examples that could not be made.
class FailedExamples {
 public:
  explicit FailedExamples(int64_t limit) : limit_(limit) {}

  void Add(int64_t example, const DataError& error) {
    LogError("", "{}", error.what());
    const std::lock_guard lock(mutex_);
    if (count_++ == 0) first_ = error.what();
    examples_.push_back(example);
  }
  bool ExceedsLimit() const { return count_ > limit_; }
  // Returns the numbers of the examples, sorted. Throws the first error if too many failed.
  std::vector<int64_t> Finish() {
    if (ExceedsLimit())
      throw DataError(fmt::format(
          "{}; this is the first of {} examples that could not be made; fix the files, or pass {} "
          "to leave them out",
          first_, count_.load(), Option("max_bad_records", std::to_string(count_.load()))));
    if (count_ > 0)
      LogWarning("io.build", "{} examples could not be made and are left out, as {} allows",
                 count_.load(), Option("max_bad_records", std::to_string(limit_)));
    std::sort(examples_.begin(), examples_.end());
    return std::move(examples_);
  }

 private:
  const int64_t limit_;
  std::atomic<int64_t> count_{0};
  std::mutex mutex_;
  std::string first_;
  std::vector<int64_t> examples_;
};

std::string DescriptionLine(const ShardPlan& plan) { return plan.build_description + "\n"; }

// Whether the folder holds shards of this stem. A shard of another shard count matters too, because
// training would read it together with ours.
bool HasShards(const ShardPlan& plan) {
  if (plan.is_single_file || !fs::exists(plan.folder)) return fs::exists(ShardPath(plan, 0));
  std::error_code error;
  const std::vector<std::string> names = NamesIn(plan.folder, error);
  if (error) ThrowDiskError("io.build", plan.folder.string(), "list the folder", error.value());
  return std::ranges::any_of(names, [&](const std::string& name) {
    return name.starts_with(plan.stem) && name.find("-of-") != std::string::npos;
  });
}

std::vector<int> MissingShards(const ShardPlan& plan) {
  std::vector<int> missing;
  for (int s = 0; s < plan.num_shards(); ++s) {
    if (plan.count(s) == 0) {
      throw UsageError(
          fmt::format("[io.build] {}: more shards than images: got {} images for {} shards; use "
                      "fewer {} or {}",
                      ShardPath(plan, s).string(), plan.starts.back(), plan.num_shards(),
                      Option("train_shards"), Option("validation_shards")));
    }
    if (!fs::exists(ShardPath(plan, s))) missing.push_back(s);
  }
  return missing;
}

// Writes one shard and adds the examples that it tried to `done`.
void WriteShard(const ShardPlan& plan, int shard, const std::function<std::string(int64_t)>& make,
                FailedExamples& failed, std::atomic<int64_t>& done) {
  const std::unique_ptr<Sink> sink = CreateFile(ShardPath(plan, shard));
  TfRecordWriter writer(*sink);
  int64_t num_failed = 0;
  for (int64_t k = plan.starts[shard]; k < plan.starts[shard + 1]; ++k) {
    try {
      writer.Write(make(k));
    } catch (const DataError& error) {
      failed.Add(k, error);
      ++num_failed;
    }
    ++done;
  }
  if (num_failed > 0 && failed.ExceedsLimit()) return;
  if (num_failed == plan.count(shard)) {
    throw DataError(fmt::format(
        "[io.build] {}: empty shard: none of its {} examples could be made; use fewer shards",
        ShardPath(plan, shard).string(), num_failed));
  }
  sink->Commit();
}

}  // namespace

fs::path ShardPath(const ShardPlan& plan, int shard) {
  if (plan.is_single_file) return plan.folder / plan.stem;
  const ShardName name{plan.stem, shard, plan.num_shards(), plan.suffix};
  return plan.folder / name.ToString();
}

std::vector<int64_t> LinspaceBounds(int64_t first, int64_t last, int count) {
  const double step = static_cast<double>(last - first) / count;
  std::vector<int64_t> bounds;
  for (int i = 0; i < count; ++i)
    bounds.push_back(static_cast<int64_t>(i * step + static_cast<double>(first)));
  bounds.push_back(last);
  return bounds;
}

std::vector<int64_t> ShardStarts(int64_t count, int num_shards) {
  constexpr int kThreads = 8;
  if (num_shards % kThreads != 0) return LinspaceBounds(0, count, num_shards);
  const std::vector<int64_t> parts = LinspaceBounds(0, count, kThreads);
  std::vector<int64_t> starts = {0};
  for (int t = 0; t < kThreads; ++t) {
    const auto bounds = LinspaceBounds(parts[t], parts[t + 1], num_shards / kThreads);
    starts.insert(starts.end(), bounds.begin() + 1, bounds.end());
  }
  return starts;
}

void CheckShards(const ShardPlan& plan) {
  constexpr uint64_t kMaxDescriptionBytes = 1 << 20;
  if (!HasShards(plan)) return;
  const fs::path path = DescriptionPath(plan);
  if (fs::exists(path) && ReadAll(*OpenFile(path), kMaxDescriptionBytes) == DescriptionLine(plan))
    return;
  throw UsageError(
      fmt::format("[io.build] {}: holds {}{} of another build: want shards made from '{}'; remove "
                  "them or choose another {}",
                  plan.folder.string(), plan.stem, plan.is_single_file ? "" : "*",
                  plan.build_description, Option("dataset_dir")));
}

std::vector<int64_t> WriteShards(const ShardPlan& plan,
                                 const std::function<std::string(int64_t)>& make) {
  MakeFolder("io.build", plan.folder.string());
  // Two jobs may start from the same raw files. The second one waits here and then finds the shards
  // of the first.
  const RunLock lock(plan.folder.string(), RunLock::OnConflict::kWait);
  RemoveTemporaryFiles(plan.folder, plan.stem);
  CheckShards(plan);
  WriteWholeFile(DescriptionPath(plan), DescriptionLine(plan));
  const std::vector<int> missing = MissingShards(plan);
  std::atomic<int64_t> done = plan.starts.back();
  for (int shard : missing) done -= plan.count(shard);
  FailedExamples failed(plan.max_bad);
  const auto write = [&](int64_t i) {
    WriteShard(plan, missing[static_cast<size_t>(i)], make, failed, done);
  };
  const auto report = [&] {
    if (plan.progress) plan.progress(done, plan.starts.back());
  };
  report();
  ParallelFor(static_cast<int64_t>(missing.size()), plan.threads, write, report);
  return failed.Finish();
}

}  // namespace carole::io
