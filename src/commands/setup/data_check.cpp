#include "src/commands/setup/data_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>

#include "io/datasets/datasets.h"
#include "io/datasets/verify.h"
#include "io/records/record_index.h"
#include "io/records/tfrecord.h"
#include "src/commands/setup/raw_data.h"
#include "src/core/error.h"

namespace carole::commands {
namespace {

using launch::Finding;
using launch::FindingStatus;

// Throws DataError if one of the two records is damaged, DiskError if the shard cannot be read.
void CheckFirstAndLastRecord(const std::filesystem::path& shard, const io::DatasetEntry& dataset,
                             int num_classes) {
  const auto source = io::OpenSeekableRecords(shard);
  const std::vector<uint64_t> offsets = io::ScanRecords(*source);
  const auto num_records = static_cast<int64_t>(offsets.size()) - 1;
  if (std::filesystem::file_size(shard) == 0) io::ThrowEmptyShard(shard.string());
  if (num_records == 0) return;  // a compressed shard without records
  std::string buffer;
  io::Image image;
  for (const int64_t record : {int64_t{0}, num_records - 1}) {
    const auto example = io::ReadRecordAt(*source, offsets[record], record, buffer);
    try {
      io::CheckExample(example.value_or(""), &dataset, num_classes, &image);
    } catch (const DataError& error) {
      throw DataError(io::WithLocation(io::RecordLocation(shard.string(), record, offsets[record]),
                                       error.what()));
    }
  }
}

}  // namespace

Finding CheckData(const DataConfig& flags, double seconds) {
  using Clock = std::chrono::steady_clock;
  try {
    const io::DatasetEntry& dataset = io::FindDataset(flags.dataset_name);
    if (HoldsOnlyRawFiles(dataset, flags.pipeline.dataset_dir)) {
      return {"data", FindingStatus::kOk,
              fmt::format("{}: raw files; training converts them to TFRecords once",
                          flags.pipeline.dataset_dir),
              ""};
    }
    const auto shards = io::FindShards(dataset, flags.pipeline.split, flags.pipeline.dataset_dir);
    const int num_classes = io::NumClasses(dataset, flags.pipeline.dataset_dir);
    // A stride without a common divisor with the number of shards visits each shard once.
    size_t step = std::max<size_t>(1, shards.size() * 5 / 8);
    while (std::gcd(step, shards.size()) != 1) ++step;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    size_t num_checked = 0;
    for (; num_checked < shards.size() && (num_checked == 0 || Clock::now() < end); ++num_checked)
      CheckFirstAndLastRecord(shards[num_checked * step % shards.size()], dataset, num_classes);
    return {"data", FindingStatus::kOk,
            fmt::format("{} shards in {}; first and last record are good in {} of them, as many "
                        "as the time allowed",
                        shards.size(), flags.pipeline.dataset_dir, num_checked),
            ""};
  } catch (const UsageError& error) {
    return {"data", FindingStatus::kProblem, error.what(), "correct the flag"};
  } catch (const DataError& error) {
    return {"data", FindingStatus::kProblem, error.what(),
            "correct --dataset_dir, or copy missing and damaged files again; `carole dataset "
            "verify` checks every record"};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const bool is_denied = text.find(std::strerror(EACCES)) != std::string::npos;
    return {"data", FindingStatus::kProblem, text,
            is_denied ? "give this user read permission"
                      : "correct --dataset_dir, or check the disk or mount that holds it"};
  }
}

}  // namespace carole::commands
