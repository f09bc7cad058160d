// The TFRecord files that a command reads: named one by one, or the shards of a data set's split.
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

  // Throws UsageError when nothing is named, DataError when shards are missing.
  std::vector<std::filesystem::path> Find() const;

  // nullptr when no name was given.
  const io::DatasetEntry* Dataset() const;
  // The folder that labels.txt would be in.
  std::filesystem::path Folder() const;
  // io::ClassNames'; none when no name of a data set was given.
  std::vector<std::string> ClassNames() const;
};

// "" of a label that is no class.
std::string NameOfLabel(const std::vector<std::string>& class_names, int64_t label);

}  // namespace carole::commands
