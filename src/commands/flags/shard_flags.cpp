#include "src/commands/flags/shard_flags.h"

#include <fmt/format.h>

#include "io/datasets/datasets.h"
#include "src/core/error.h"
#include "src/core/text/join_names.h"

namespace carole::commands {

namespace fs = std::filesystem;

void ShardFlags::AddTo(CommandLine& line) {
  line.AddPositionalPath("FILE", files,
                         "TFRecord files, instead of --dataset_name and --dataset_dir.");
  line.Group("Data");
  line.Add("dataset_name", dataset_name,
           "Data set whose shards are read. " + OneOf(JoinNames(io::kDatasets)), HelpLevel::kBasic);
  line.Add("dataset_split_name", dataset_split_name, "Split whose shards are read.",
           HelpLevel::kBasic);
  line.AddPathList("dataset_dir,data_dir", dataset_dir,
                   "Folder of the shards, or a comma list of folders.", HelpLevel::kBasic);
}

std::vector<fs::path> ShardFlags::Find() const {
  std::error_code error;
  for (const std::string& file : files) {
    if (fs::is_directory(file, error))
      throw UsageError(fmt::format(
          "[flags] {}: is a folder, want TFRecord files; name files, or give --dataset_name and "
          "--dataset_dir",
          file));
  }
  if (!files.empty()) return {files.begin(), files.end()};
  if (dataset_name.empty() || dataset_dir.empty())
    throw UsageError(
        "[flags] FILE: missing; name TFRecord files, or give --dataset_name and --dataset_dir");
  return io::FindShards(io::FindDataset(dataset_name), dataset_split_name, dataset_dir);
}

const io::DatasetEntry* ShardFlags::Dataset() const {
  return dataset_name.empty() ? nullptr : &io::FindDataset(dataset_name);
}

fs::path ShardFlags::Folder() const {
  if (!dataset_dir.empty() || files.empty()) return dataset_dir;
  return fs::path(files[0]).parent_path();
}

std::vector<std::string> ShardFlags::ClassNames() const {
  const io::DatasetEntry* dataset = Dataset();
  return dataset == nullptr ? std::vector<std::string>() : io::ClassNames(*dataset, Folder());
}

std::string LabelName(const std::vector<std::string>& class_names, int64_t label) {
  const bool is_class = label >= 0 && label < static_cast<int64_t>(class_names.size());
  return is_class ? class_names[static_cast<size_t>(label)] : "";
}

}  // namespace carole::commands
