#include "src/commands/flags/shard_flags.h"

#include <fmt/format.h>

#include "io/datasets/datasets.h"
#include "src/core/error.h"

namespace carole::commands {

namespace fs = std::filesystem;

void ShardFlags::AddTo(CommandLine& line) {
  line.AddPositional("FILES", files, "TFRecord files; or give --dataset_name and --dataset_dir");
  line.Group("Data");
  line.Add("dataset_name", dataset_name, "whose shards");
  line.Add("dataset_split_name", dataset_split_name, "of which split");
  line.Add("dataset_dir,data_dir", dataset_dir,
           "folder of the shards, or several, with commas between");
}

std::vector<fs::path> ShardFlags::Find() const {
  std::error_code error;
  for (const std::string& file : files) {
    if (fs::is_directory(file, error))
      throw UsageError(fmt::format(
          "[flags] {}: is a folder: name TFRecord files, or --dataset_name and --dataset_dir",
          file));
  }
  if (!files.empty()) return {files.begin(), files.end()};
  if (dataset_name.empty() || dataset_dir.empty())
    throw UsageError(
        "[flags] nothing to read: name TFRecord files, or --dataset_name and --dataset_dir");
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

std::string NameOfLabel(const std::vector<std::string>& class_names, int64_t label) {
  const bool is_class = label >= 0 && label < static_cast<int64_t>(class_names.size());
  return is_class ? class_names[static_cast<size_t>(label)] : "";
}

}  // namespace carole::commands
