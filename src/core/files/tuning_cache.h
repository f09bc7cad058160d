// A file that keeps the results of autotuning from run to run, such as the fastest cuDNN plan of a
// convolution or the fastest all-reduce algorithm for a size. Measuring takes longer than the first
// step of a run should, so later runs reuse the result. All of them then choose the same way.
//
// File format: the first line is "carole choices 1 HASH", with the hash of everything that follows
// in hexadecimal. Then comes one line for each choice: PLATFORM tab TASK tab CHOICE. Several
// processes may use the same file. Each one reads it again before it writes, so it keeps what
// others added. If two write at the same moment, the last one wins.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace carole {

class TuningCache {
 public:
  // Reads the file. `platform` names everything that speed depends on in addition to the task: the
  // GPU and the version of the library, or the hosts. Find() returns only the choices of this
  // platform; those of others stay in the file. A damaged or incomplete file counts as empty, with
  // a warning. If `path` is "", nothing is kept.
  TuningCache(std::string path, std::string platform);

  // Returns the choice for the task, or nullopt if none is known.
  std::optional<std::string> Find(const std::string& task) const;
  // Remembers the choice and writes the file. If the file cannot be written, that is logged once
  // and not tried again. Neither text may contain tabs or line ends.
  void Add(const std::string& task, const std::string& choice);

  // Returns the path of the cache file `name`: $XDG_CACHE_HOME/carole/name, or
  // ~/.cache/carole/name; "" if neither variable is set to an absolute path.
  static std::string DefaultPath(const std::string& name);

 private:
  using Choices = std::map<std::pair<std::string, std::string>, std::string>;  // (platform, task)

  void Read();
  std::error_code Write() const;

  const std::string path_, platform_;
  Choices choices_;
  bool is_writable_ = true;
};

}  // namespace carole
