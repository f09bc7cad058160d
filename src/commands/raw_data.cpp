#include "src/commands/raw_data.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "collectives/apart.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

bool HoldsMatch(const fs::path& folder, std::string_view pattern) {
  std::error_code error;
  const std::string glob(pattern);
  return std::any_of(fs::directory_iterator(folder, error), fs::directory_iterator(),
                     [&](const fs::directory_entry& entry) {
                       return fnmatch(glob.c_str(), entry.path().filename().c_str(), 0) == 0;
                     });
}

bool HoldsRecords(const fs::path& folder, const io::DatasetEntry& dataset) {
  return std::any_of(dataset.splits.begin(), dataset.splits.end(),
                     [&](const io::SplitEntry& s) { return HoldsMatch(folder, s.pattern); });
}

fs::path WritableFolder(const DatasetFlags& flags) {
  const fs::path data = flags.dataset_dir;
  const fs::path beside = fs::is_directory(data) ? data : fs::absolute(data).parent_path();
  for (const fs::path& folder : {beside, fs::path(flags.work_dir)}) {
    if (!folder.empty() && access(folder.c_str(), W_OK) == 0) return folder / "records";
  }
  throw DiskError(
      fmt::format("[data] {}: cannot be written, so its raw files cannot become TFRecords there; "
                  "name another folder with --work_dir",
                  flags.dataset_dir));
}

}  // namespace

bool HoldsOnlyRawFiles(const io::DatasetEntry& dataset, const std::string& dataset_dir) {
  return dataset.build == io::BuildMnist && !HoldsRecords(dataset_dir, dataset) &&
         io::HoldsRawMnist(dataset, dataset_dir);
}

DatasetFlags PrepareRecords(const DatasetFlags& flags, const NetInput& input, const Job& job) {
  DatasetFlags prepared = flags;
  const bool is_raw = HoldsOnlyRawFiles(*input.dataset, flags.dataset_dir);
  collectives::WorkApart(job.communicator(), "raw files", [&] {
    if (!is_raw) return;
    prepared.dataset_dir = WritableFolder(flags);
    if (job.communicator().local_rank() != 0) return;
    if (HoldsRecords(prepared.dataset_dir, *input.dataset)) return;
    LogInfo("data", "{}: raw files; their TFRecords are written to {}", flags.dataset_dir,
            prepared.dataset_dir);
    input.dataset->build({.dataset = input.dataset,
                          .raw_dir = flags.dataset_dir,
                          .output_dir = prepared.dataset_dir});
  });
  return prepared;
}

}  // namespace carole::commands
