#include "src/core/small_file.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace carole {
namespace {

TEST(SmallFile, HasTheOldContentOrTheNew) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  EXPECT_EQ(ReadSmallFile(path), "");
  EXPECT_TRUE(ReplaceSmallFile(path, "one"));
  EXPECT_TRUE(ReplaceSmallFile(path, "two\n"));
  EXPECT_EQ(ReadSmallFile(path), "two\n");
  EXPECT_FALSE(ReplaceSmallFile(folder / "none/a.txt", "three"));
  std::filesystem::create_directory(folder / "b.txt");
  EXPECT_FALSE(ReplaceSmallFile(folder / "b.txt", "four"));
  EXPECT_FALSE(std::filesystem::exists(folder / "b.txt.part"));
}

}  // namespace
}  // namespace carole
