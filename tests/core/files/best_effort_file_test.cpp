#include "src/core/files/best_effort_file.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace carole {
namespace {

TEST(BestEffortFile, HasTheOldOrTheNewContent) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  EXPECT_EQ(ReadFileOrEmpty(path), "");
  EXPECT_FALSE(ReplaceFile(path, "one"));
  EXPECT_FALSE(ReplaceFile(path, "two\n"));
  EXPECT_EQ(ReadFileOrEmpty(path), "two\n");
  EXPECT_EQ(ReplaceFile(folder / "none/a.txt", "three"), std::errc::no_such_file_or_directory);
  std::filesystem::create_directory(folder / "b.txt");
  EXPECT_EQ(ReplaceFile(folder / "b.txt", "four"), std::errc::is_a_directory);
  EXPECT_FALSE(std::filesystem::exists(folder / "b.txt.part"));
}

}  // namespace
}  // namespace carole
