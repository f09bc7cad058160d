// Enumerates the states in which a loss of power can leave a folder. crash_states.cpp explains the
// rules.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/durability/recorder.h"

namespace carole::testing {

// The immutable content of a file.
struct Content {
  explicit Content(std::string text)
      : bytes(std::move(text)), hash(std::hash<std::string>()(bytes)) {}
  const std::string bytes;
  const size_t hash;
};
using ContentPtr = std::shared_ptr<const Content>;

// A folder after a crash. Keys are paths relative to the recorded folder.
struct CrashState {
  size_t cut = 0;                           // number of operations that were executed before
  std::string choice;                       // which unsynced operations reached the disk
  std::map<std::string, ContentPtr> files;  // path -> content
  std::vector<std::string> folders;

  // "after operation 12 (fsync /run/a), nothing unsynced is on the disk"
  std::string Describe(const std::vector<FileOp>& ops) const;
  // Writes the state into an empty or missing folder.
  void Materialize(const std::string& folder) const;
};

struct CrashOptions {
  // Whether readers ignore the content of a file at a cut. States that differ only there count
  // once; the file is empty in them.
  std::function<bool(const std::string& path, size_t cut)> is_ignored;
  // What must have survived at a cut, as a number. States of different stages are visited
  // separately, even if they are equal.
  std::function<int(size_t cut)> stage = [](size_t) { return 0; };
  int random_subsets = 4;  // for each cut
  uint64_t seed = 1;
  size_t block_bytes = 4096;  // of a write; a block is on the disk or not
};

struct CrashCounts {
  size_t operations = 0;
  size_t candidates = 0;  // states that were enumerated
  size_t distinct = 0;    // states that differ in what readers see or in the stage
};

// Calls `visit` for each distinct state of each cut.
CrashCounts ForEachCrashState(const Tree& before, const std::vector<FileOp>& ops,
                              const CrashOptions& options,
                              const std::function<void(const CrashState&)>& visit);

// The complete contents that each path ever had, as hashes: those before the first operation, and
// those that a rename gave it. Files that are written in place are not in it.
std::map<std::string, std::set<size_t>> CompleteVersions(const Tree& before,
                                                         const std::vector<FileOp>& ops);

}  // namespace carole::testing
