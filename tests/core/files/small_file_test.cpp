#include "src/core/files/small_file.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace carole {
namespace {

TEST(SmallFile, HasTheOldContentOrTheNew) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  EXPECT_EQ(ReadSmallFile(path), "");
  EXPECT_FALSE(ReplaceSmallFile(path, "one"));
  EXPECT_FALSE(ReplaceSmallFile(path, "two\n"));
  EXPECT_EQ(ReadSmallFile(path), "two\n");
  EXPECT_EQ(ReplaceSmallFile(folder / "none/a.txt", "three"), std::errc::no_such_file_or_directory);
  std::filesystem::create_directory(folder / "b.txt");
  EXPECT_EQ(ReplaceSmallFile(folder / "b.txt", "four"), std::errc::is_a_directory);
  EXPECT_FALSE(std::filesystem::exists(folder / "b.txt.part"));
}

}  // namespace
}  // namespace carole
