#include "src/core/files/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>

#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/host_name.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace carole {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    names.push_back(file.path().filename().string());
  return names;
}

TEST(MakeFolder, MakesAllThatAreMissing) {
  const TemporaryFolder folder;
  for (const char* path : {"a", "b/c/d", "b/c/d/", "e/f/", "b//g"}) {
    MakeFolder("test", folder / path);
    EXPECT_TRUE(std::filesystem::is_directory(folder / path)) << path;
  }
  MakeFolder("test", folder.path());
  MakeFolder("test", "/");
  MakeFolder("test", "");
}

TEST(MakeFolder, NamesAFileInTheWay) {
  const TemporaryFolder folder;
  WriteText(folder / "file", "text");
  EXPECT_THAT(TextOf<DiskError>([&] { MakeFolder("test", folder / "file/new"); }),
              HasSubstr("/file/new: cannot make the folder: Not a directory"));
  EXPECT_THAT(TextOf<DiskError>([&] { MakeFolder("test", folder / "file"); }),
              HasSubstr("/file: cannot make the folder: Not a directory"));
}

TEST(WriteAt, WritesAtTheOffsetOrReturnsTheError) {
  const TemporaryFolder folder;
  WriteText(folder / "a", "0123456789");
  const FileDescriptor file(open((folder / "a").c_str(), O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(WriteAt(file.get(), "xyz", 4), 0);
  EXPECT_EQ(ReadText(folder / "a"), "0123xyz789");
  const FileDescriptor read_only(open((folder / "a").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(WriteAt(read_only.get(), "xyz", 4), EBADF);
}

TEST(RemoveFileDurably, AcceptsAMissingFile) {
  const TemporaryFolder folder;
  WriteText(folder / "a", "text");
  RemoveFileDurably("test", folder / "a");
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  RemoveFileDurably("test", folder / "a");
  EXPECT_THAT(TextOf<DiskError>([&] { RemoveFileDurably("test", folder.path()); }),
              HasSubstr("cannot remove"));
}

TEST(CommitTogether, ReplacesAllFilesOrNone) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& text, bool commit) {
    std::array<std::unique_ptr<Sink>, 2> files = {CreateFile(folder / "data"),
                                                  CreateFile(folder / "index")};
    for (const auto& file : files) file->Append(text);
    if (commit) CommitTogether(files);
  };
  write("old", true);
  write("lost", false);
  for (const char* name : {"data", "index"}) EXPECT_EQ(ReadText(folder / name), "old");
  write("new", true);
  for (const char* name : {"data", "index"}) EXPECT_EQ(ReadText(folder / name), "new");
  EXPECT_EQ(NamesIn(folder.path()).size(), 2u);
}

TEST(RemoveAbandonedTemporaryFiles, KeepsThoseOfRunningProcessesAndOtherHosts) {
  const TemporaryFolder folder;
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  ASSERT_EQ(waitpid(ended, nullptr, 0), ended);
  const std::string abandoned = fmt::format(".a.{}-{}-0.tmp", HostName(), ended);
  const std::vector<std::string> kept = {fmt::format(".a.{}-{}-0.tmp", HostName(), getpid()),
                                         fmt::format(".a.other-{}-0.tmp", ended),
                                         fmt::format(".ab.{}-{}-0.tmp", HostName(), ended),
                                         fmt::format(".a.{}-x-0.tmp", HostName()), "a.tmp"};
  for (const std::string& name : kept) WriteText(folder / name, "text");
  WriteText(folder / abandoned, "text");
  RemoveAbandonedTemporaryFiles(folder / "a");
  EXPECT_THAT(NamesIn(folder.path()), ::testing::UnorderedElementsAreArray(kept));
  WriteText(folder / abandoned, "text");
  WriteWholeFile(folder / "a", "new");  // writers do this too
  EXPECT_FALSE(std::filesystem::exists(folder / abandoned));
}

}  // namespace
}  // namespace carole
