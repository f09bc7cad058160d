// A run without training: saves checkpoints, the best ones and `evaluated` as the trainer does.
//
//   carole_durability_writer FOLDER FIRST LAST   saves the steps FIRST to LAST
//
// It opens the missing file FOLDER/.mark-saved-STEP after a save has returned, and
// .mark-best-STEP after that of a best checkpoint. A tracer sees these calls.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "io/checkpoint/checkpoint_writer.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/files/run_lock.h"
#include "tests/durability/example_checkpoint.h"

namespace carole::testing {
namespace {

void Mark(const std::string& folder, const std::string& what, int64_t step) {
  const std::string path = folder + "/.mark-" + what + "-" + std::to_string(step);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file >= 0) close(file);
}

void Run(const std::string& folder, int64_t first, int64_t last) {
  MakeFolder("train", folder);
  const RunLock lock(folder);
  RemoveTemporaryFiles(folder, "evaluated");
  io::CheckpointWriter writer({.folder = folder, .keep = 2, .keras = std::nullopt});
  MakeFolder("train", folder + "/best");
  io::CheckpointWriter best({.folder = folder + "/best", .keep = 1, .keras = std::nullopt});
  for (int64_t step = first; step <= last; ++step) {
    writer.Write(ExampleCheckpoint(step));
    writer.Wait();
    Mark(folder, "saved", step);
    if (step % 2 != 0) continue;
    best.Write(ExampleCheckpoint(step));
    best.Wait();
    Mark(folder, "best", step);
    WriteWholeFile(folder + "/evaluated", std::to_string(step) + "\n");
    Mark(folder, "evaluated", step);
  }
}

}  // namespace
}  // namespace carole::testing

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  try {
    carole::testing::Run(argv[1], std::stoll(argv[2]), std::stoll(argv[3]));
    return 0;
  } catch (const carole::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
