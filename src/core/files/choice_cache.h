// Which way was the fastest for a task, kept from run to run: to find that out takes longer than a
// run's first step should, and the next run takes the same way.
//
// The file: a line "carole choices 1 HASH" with the hash of all that follows, then a line for each
// choice, "PLACE tab TASK tab CHOICE". Many processes may use one; the last to write wins, and
// keeps what it read of the others.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace carole {

class ChoiceCache {
 public:
  // `place`: all that speed depends on beside the task (GPU and library's version, hosts);
  // choices of others are kept, not found. A file that is not whole counts as empty, which one line
  // in the log says. path "": nothing is kept.
  ChoiceCache(std::string path, std::string place);

  std::optional<std::string> Find(const std::string& task) const;
  // Writes the file, too; one that cannot be written is left, which the log says once. No text has
  // tabs or line ends.
  void Add(const std::string& task, const std::string& choice);

  // Where the file `name` lies: in $XDG_CACHE_HOME/carole, or ~/.cache/carole; "" without either.
  static std::string DefaultPath(const std::string& name);

 private:
  using Choices = std::map<std::pair<std::string, std::string>, std::string>;  // by place and task

  void Read();
  std::error_code Write() const;

  const std::string path_, place_;
  Choices choices_;
  bool is_writable_ = true;
};

}  // namespace carole
