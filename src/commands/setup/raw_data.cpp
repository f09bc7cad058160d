#include "src/commands/setup/raw_data.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "collectives/ranks/rank_local_work.h"
#include "src/core/error.h"
#include "src/core/hash.h"
#include "src/core/log.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

bool HoldsSplit(const fs::path& folder, const io::SplitEntry& split) {
  std::error_code error;
  const std::string glob(split.pattern);
  return std::any_of(fs::directory_iterator(folder, error), fs::directory_iterator(),
                     [&](const fs::directory_entry& entry) {
                       return fnmatch(glob.c_str(), entry.path().filename().c_str(), 0) == 0;
                     });
}

bool HoldsAllSplits(const fs::path& folder, const io::DatasetEntry& dataset) {
  return std::ranges::all_of(dataset.splits,
                             [&](const io::SplitEntry& s) { return HoldsSplit(folder, s); });
}

// Another for other raw files and for those that replaced them: records of theirs are not ours.
std::string NameOfRecords(const io::DatasetEntry& dataset, const fs::path& raw_dir) {
  std::string identity(dataset.name);
  for (const fs::path& file : io::FindRawMnist(dataset, raw_dir)) {
    identity += fmt::format("\n{} {} {}", fs::canonical(file).string(), fs::file_size(file),
                            fs::last_write_time(file).time_since_epoch().count());
  }
  return fmt::format("records-{:016x}", Fnv1a64(identity));
}

// Where the records are, or can be written.
fs::path FolderOfRecords(const DatasetFlags& flags, const io::DatasetEntry& dataset) {
  const fs::path data = flags.dataset_dir;
  const fs::path beside = fs::is_directory(data) ? data : fs::absolute(data).parent_path();
  const std::string name = NameOfRecords(dataset, data);
  for (const fs::path& folder : {beside, fs::path(flags.work_dir)}) {
    if (folder.empty()) continue;
    if (HoldsAllSplits(folder / name, dataset) || access(folder.c_str(), W_OK) == 0)
      return folder / name;
  }
  if (!flags.work_dir.empty()) {
    throw DiskError(
        fmt::format("[data] --work_dir {}: is not there or cannot be written: want a folder for "
                    "the TFRecords of {}'s raw files",
                    flags.work_dir, flags.dataset_dir));
  }
  throw DiskError(
      fmt::format("[data] {}: cannot be written, so its raw files cannot become TFRecords there; "
                  "name a folder for them with --work_dir",
                  flags.dataset_dir));
}

}  // namespace

bool HoldsOnlyRawFiles(const io::DatasetEntry& dataset, const std::string& dataset_dir) {
  return dataset.build == io::BuildMnist &&
         std::ranges::none_of(
             dataset.splits, [&](const io::SplitEntry& s) { return HoldsSplit(dataset_dir, s); }) &&
         !io::FindRawMnist(dataset, dataset_dir).empty();
}

DatasetFlags PrepareRecords(const DatasetFlags& flags, const NetInput& input, const Job& job) {
  DatasetFlags prepared = flags;
  const bool is_raw = HoldsOnlyRawFiles(*input.dataset, flags.dataset_dir);
  collectives::RunRankLocal(job.communicator(), "raw files", [&] {
    if (!is_raw) return;
    prepared.dataset_dir = FolderOfRecords(flags, *input.dataset);
    if (job.communicator().local_rank() != 0) return;
    if (HoldsAllSplits(prepared.dataset_dir, *input.dataset)) return;
    LogInfo("data", "{}: raw files; their TFRecords are written to {}", flags.dataset_dir,
            prepared.dataset_dir);
    input.dataset->build({.dataset = input.dataset,
                          .raw_dir = flags.dataset_dir,
                          .output_dir = prepared.dataset_dir});
  });
  return prepared;
}

}  // namespace carole::commands
