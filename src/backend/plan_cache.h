// Which of a library's plans was the fastest for a task, kept from run to run: to find that out
// takes longer than a run's first step should.
//
// The file: a line "carole plans 1 HASH" with the hash of all that follows, then a line for each
// plan, "MACHINE tab TASK tab PLAN". Many processes may use one; the last to write wins, and keeps
// what it read of the others.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace carole {

class PlanCache {
 public:
  // `machine`: all that a plan's speed depends on beside its task; plans of others are kept, not
  // found. A file that is not whole counts as empty, which one line in the log says.
  PlanCache(std::string path, std::string machine);

  std::optional<std::string> Find(const std::string& task) const;
  // Writes the file, too; one that cannot be written is left, which the log says once. No text has
  // tabs or line ends.
  void Add(const std::string& task, const std::string& plan);

  // In $XDG_CACHE_HOME/carole, or ~/.cache/carole; "" where there is neither: nothing is kept.
  static std::string DefaultPath();

 private:
  using Plans = std::map<std::pair<std::string, std::string>, std::string>;  // by machine and task

  void Read();
  bool Write() const;

  const std::string path_, machine_;
  Plans plans_;
  bool is_writable_ = true;
};

}  // namespace carole
