// Flags that select TFRecord files: named one by one, or as the shards of a data set's split.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/commands/cli/command_line.h"

namespace carole::io {
struct DatasetEntry;
}

namespace carole::commands {

struct ShardFlags {
  std::vector<std::string> files;
  std::string dataset_name;
  std::string dataset_split_name = "train";
  std::string dataset_dir;

  void AddTo(CommandLine& line);

  // Returns the selected files. Throws UsageError if none is selected, DataError if shards are
  // missing.
  std::vector<std::filesystem::path> Find() const;

  // Returns the named data set, or nullptr if none was named.
  const io::DatasetEntry* Dataset() const;
  // Returns the folder that labels.txt would be in.
  std::filesystem::path Folder() const;
  // Returns the data set's class names as io::ClassNames() does, or none if no data set was named.
  std::vector<std::string> ClassNames() const;
};

// Returns the name of a label, or "" if it is not a class.
std::string LabelName(const std::vector<std::string>& class_names, int64_t label);

}  // namespace carole::commands
