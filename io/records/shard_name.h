// What the shards of a set are called: train-00003-of-00128.tfrecord.
#pragma once

#include <optional>
#include <string>

namespace carole::io {

struct ShardName {
  std::string stem;  // what stands before the number: "train-"
  int number = 0;
  int count = 0;
  std::string suffix;  // ".tfrecord"

  // nullopt for names of another form.
  static std::optional<ShardName> Parse(const std::string& name);
  std::string ToString() const;
};

}  // namespace carole::io
