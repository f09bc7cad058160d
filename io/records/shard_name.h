// Names of shards that belong to one set: train-00003-of-00128.tfrecord.
#pragma once

#include <optional>
#include <string>

namespace carole::io {

struct ShardName {
  std::string stem;  // the part before the number: "train-"
  int number = 0;
  int count = 0;
  std::string suffix;  // ".tfrecord"

  // Parses a file name. Returns nullopt if the name does not have this form.
  static std::optional<ShardName> Parse(const std::string& name);
  std::string ToString() const;
};

}  // namespace carole::io
