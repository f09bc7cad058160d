// How one who only shares a run's folder with a job, as an evaluator does, learns that the job is
// over: a note that the chief leaves there.
#pragma once

#include <string>

#include "launch/cluster/environment.h"

namespace carole::launch {

// The variable by which `carole launch` names a file for rank 0 to note in that the job ended well.
inline constexpr const char* kRanksEnd = "CAROLE_RANKS_END";
// Makes that file, on rank 0, where one is named. Where it cannot be written that is a warning.
void NoteRanksEnd(const GetVariable& get);

// Writes the note, a new one each time. A folder that cannot be written gives a warning.
void NoteJobEnd(const std::string& train_dir, int exit_code);

// What was noted since the object was made: a note that was there before is an earlier job's.
class JobEnd {
 public:
  explicit JobEnd(const std::string& train_dir);
  bool Noted() const;

 private:
  std::string path_;
  std::string before_;
};

}  // namespace carole::launch
