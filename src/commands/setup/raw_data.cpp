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

// Returns "records-HASH". The hash covers paths, sizes and times of the raw files, so that records
// of other files, or of files that were replaced since, are not used.
std::string RecordsFolderName(const io::DatasetEntry& dataset, const fs::path& raw_dir) {
  std::string identity(dataset.name);
  for (const fs::path& file : io::FindRawMnist(dataset, raw_dir)) {
    identity += fmt::format("\n{} {} {}", fs::canonical(file).string(), fs::file_size(file),
                            fs::last_write_time(file).time_since_epoch().count());
  }
  return fmt::format("records-{:016x}", Fnv1a64(identity));
}

// Returns the folder where the records are or can be written.
fs::path ChooseRecordsFolder(const DataConfig& flags, const io::DatasetEntry& dataset) {
  const fs::path data = flags.pipeline.dataset_dir;
  const fs::path data_folder = fs::is_directory(data) ? data : fs::absolute(data).parent_path();
  const std::string name = RecordsFolderName(dataset, data);
  for (const fs::path& folder : {data_folder, fs::path(flags.pipeline.work_dir)}) {
    if (folder.empty()) continue;
    if (HoldsAllSplits(folder / name, dataset) || access(folder.c_str(), W_OK) == 0)
      return folder / name;
  }
  if (!flags.pipeline.work_dir.empty()) {
    throw DiskError(
        fmt::format("[data] --work_dir={}: {}; name a folder for the TFRecords that are made from "
                    "the raw files in {}",
                    flags.pipeline.work_dir,
                    fs::exists(flags.pipeline.work_dir) ? "cannot be written" : "does not exist",
                    flags.pipeline.dataset_dir));
  }
  throw DiskError(
      fmt::format("[data] {}: is read-only, so TFRecords of its raw files cannot be written there; "
                  "name a folder for them with --work_dir",
                  flags.pipeline.dataset_dir));
}

}  // namespace

bool HoldsOnlyRawFiles(const io::DatasetEntry& dataset, const std::string& dataset_dir) {
  return dataset.build == io::BuildMnist &&
         std::ranges::none_of(
             dataset.splits, [&](const io::SplitEntry& s) { return HoldsSplit(dataset_dir, s); }) &&
         !io::FindRawMnist(dataset, dataset_dir).empty();
}

DataConfig PrepareRecords(const DataConfig& flags, const NetInput& input,
                          const RankContext& context) {
  DataConfig prepared = flags;
  const bool is_raw = HoldsOnlyRawFiles(*input.dataset, flags.pipeline.dataset_dir);
  collectives::RunRankLocal(context.communicator(), "raw files", [&] {
    if (!is_raw) return;
    prepared.pipeline.dataset_dir = ChooseRecordsFolder(flags, *input.dataset);
    if (context.communicator().local_rank() != 0) return;
    if (HoldsAllSplits(prepared.pipeline.dataset_dir, *input.dataset)) return;
    LogInfo("data", "{}: raw files; writing their TFRecords to {}", flags.pipeline.dataset_dir,
            prepared.pipeline.dataset_dir);
    input.dataset->build({.dataset = input.dataset,
                          .raw_dir = flags.pipeline.dataset_dir,
                          .output_dir = prepared.pipeline.dataset_dir});
  });
  return prepared;
}

}  // namespace carole::commands
