#include "src/core/files/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "src/core/error.h"
#include "tests/support/temporary_folder.h"

namespace carole {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(RunLock, ErrorOfASecondRunNamesTheHolder) {
  const TemporaryFolder folder;
  {
    const RunLock lock(folder.path());
    EXPECT_THAT([&] { RunLock second(folder.path()); },
                ThrowsMessage<ConfigError>(
                    AllOf(HasSubstr(folder.path() + ": is being written by another run: process " +
                                    std::to_string(getpid()) + " on "),
                          HasSubstr(" since 20"))));
  }
  EXPECT_NO_THROW(RunLock(folder.path()));
}

TEST(RunLock, IsReleasedWhenTheHolderIsKilled) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(folder.path());
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT([&] { RunLock second(folder.path()); },
              ThrowsMessage<ConfigError>(HasSubstr("process " + std::to_string(child) + " on ")));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(RunLock(folder.path()));
  close(ready[0]);
  close(ready[1]);
}

// This happens after `mv RUN OLD` or `rm -r RUN`; then another run may start in the same folder.
TEST(RunLock, IsLostIfTheFolderIsMovedOrReplaced) {
  const TemporaryFolder parent;
  const std::string folder = parent / "run", elsewhere = parent / "old";
  std::filesystem::create_directory(folder);
  const RunLock lock(folder);
  EXPECT_NO_THROW(lock.RequireHeld());
  std::filesystem::rename(folder, elsewhere);
  EXPECT_THAT([&] { lock.RequireHeld(); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr(folder + ": no longer locked by this run"),
                                               HasSubstr("now locked by nobody;"))));
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/.lock") << "process 7 on b\n";
  EXPECT_THAT([&] { lock.RequireHeld(); },
              ThrowsMessage<ConfigError>(HasSubstr("now locked by process 7 on b;")));
}

TEST(RunLock, MissingFolderIsADiskError) {
  EXPECT_THAT([&] { RunLock lock("/nonexistent/folder"); },
              ThrowsMessage<DiskError>(HasSubstr("make its folder first")));
}

}  // namespace
}  // namespace carole
