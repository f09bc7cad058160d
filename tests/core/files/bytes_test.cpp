#include "src/core/files/bytes.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/core/files/disk.h"
#include "src/core/host_name.h"
#include "tests/io/damage.h"

namespace carole {
namespace {

TEST(Bytes, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  const std::string text = std::string(1'500'000, 'x') + std::string(1'500'000, 'y');
  const auto sink = CreateFile(folder / "a");
  for (size_t at = 0; at < text.size(); at += 1'000) sink->Append(text.substr(at, 1'000));
  sink->Commit();
  const auto file = OpenFile(folder / "a");
  EXPECT_EQ(file->size(), text.size());
  EXPECT_EQ(ReadAll(*file, text.size()), text);
}

TEST(Bytes, ReadAtTheEndReturnsFewerBytes) {
  const TemporaryFolder folder;
  WriteText(folder / "a", "0123456789");
  const auto file = OpenFile(folder / "a");
  char out[8];
  EXPECT_EQ(file->ReadAt(6, out), 4u);
  EXPECT_EQ(std::string_view(out, 4), "6789");
  EXPECT_EQ(file->ReadAt(10, out), 0u);
  EXPECT_EQ(MemorySource("m", "0123456789").ReadAt(6, out), 4u);
  EXPECT_EQ(MemorySource("m", "0123456789").ReadAt(11, out), 0u);
}

TEST(Bytes, SinkWithoutCommitLeavesNoFile) {
  const TemporaryFolder folder;
  WriteText(folder / "a", "old");
  { CreateFile(folder / "a")->Append("new"); }
  EXPECT_EQ(ReadText(folder / "a"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

// A restarted container has the same host name and process IDs. So the temporary files of a killed
// process can have the names that the new process would choose.
TEST(Bytes, WritesDespiteOldTemporaryFilesOfTheSameName) {
  const TemporaryFolder folder;
  for (int count = 0; count < 40; ++count)
    WriteText(folder / fmt::format(".a.{}-{}-{}.tmp", HostName(), getpid(), count), "old");
  WriteWholeFile(folder / "a", "new");
  EXPECT_EQ(ReadText(folder / "a"), "new");
}

TEST(Bytes, RefusesToReplaceAPipe) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(
      TextOf<UsageError>([&] { CreateFile(pipe); }),
      testing::HasSubstr("/pipe: not a regular file: got a device, a pipe or an open file, want"));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(Bytes, CopiesHaveTheSameContent) {
  const TemporaryFolder folder;
  for (const size_t size : {0, 5, 1 << 20, (1 << 20) + 1}) {
    WriteText(folder / "a", std::string(size, 'a'));
    CopyFile(folder / "a", folder / "b");
    EXPECT_EQ(ReadText(folder / "b"), std::string(size, 'a'));
  }
}

TEST(Bytes, ErrorsNameThePath) {
  const TemporaryFolder folder;
  EXPECT_THAT(TextOf<DiskError>([&] { OpenFile(folder / "nothing"); }),
              testing::HasSubstr("/nothing: cannot open: No such file"));
  EXPECT_THAT(TextOf<DiskError>([&] { OpenFile(folder.path()); }),
              testing::HasSubstr("not a regular file: got a folder, device or pipe"));
  EXPECT_THAT(TextOf<DiskError>([&] { CreateFile(folder / "no/file"); }),
              testing::HasSubstr("cannot create"));
}

TEST(Bytes, ReadAllRejectsMoreThanTheLimit) {
  EXPECT_EQ(ReadAll(MemorySource("m", "12345"), 5), "12345");
  EXPECT_THAT(TextOf<DataError>([] { ReadAll(MemorySource("m", "123456"), 5); }),
              testing::HasSubstr("m: too large: got more than 5 bytes, want at most 5"));
}

}  // namespace
}  // namespace carole
