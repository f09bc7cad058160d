#include "src/core/files/tuning_cache.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/temporary_folder.h"

namespace carole {
namespace {

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

TEST(TuningCache, KeepsTheChoicesOfEachPlatform) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/new/folder/plans";
  {
    TuningCache cache(path, "GPU A, cuDNN 9.1");
    EXPECT_EQ(cache.Find("convolution"), std::nullopt);
    cache.Add("convolution", "eng4_k1=2");
    cache.Add("other", "eng0");
  }
  EXPECT_EQ(TuningCache(path, "GPU A, cuDNN 9.1").Find("convolution"), "eng4_k1=2");
  TuningCache b(path, "GPU B, cuDNN 9.1");
  EXPECT_EQ(b.Find("convolution"), std::nullopt);
  b.Add("convolution", "eng7");
  EXPECT_EQ(TuningCache(path, "GPU A, cuDNN 9.1").Find("convolution"), "eng4_k1=2");
  EXPECT_EQ(TuningCache(path, "GPU B, cuDNN 9.1").Find("convolution"), "eng7");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() + "/new/folder"), {}),
            1);
}

TEST(TuningCache, KeepsWhatOtherProcessesWroteMeanwhile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/plans";
  TuningCache a(path, "m"), b(path, "m");
  a.Add("1", "x");
  b.Add("2", "y");
  a.Add("3", "z");
  const TuningCache all(path, "m");
  EXPECT_EQ(all.Find("1"), "x");
  EXPECT_EQ(all.Find("2"), "y");
  EXPECT_EQ(all.Find("3"), "z");
}

TEST(TuningCache, IgnoresADamagedFileAndWritesItAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/plans";
  TuningCache(path, "m").Add("task", "plan");
  const std::string whole = Contents(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    Write(path, damaged);
    EXPECT_EQ(TuningCache(path, "m").Find("task"), std::nullopt) << i;
    Write(path, whole.substr(0, i));
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(TuningCache(path, "m").Find("task"), std::nullopt) << i;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::HasSubstr("damaged or incomplete cache"))
        << i;
  }
  TuningCache(path, "m").Add("task", "plan");
  EXPECT_EQ(Contents(path), whole);
}

TEST(TuningCache, WorksIfTheFileCannotBeWritten) {
  const TemporaryFolder folder;
  for (const std::string& path : {std::string(), folder.path()}) {  // no path; a folder
    TuningCache cache(path, "m");
    cache.Add("task", "plan");
    EXPECT_EQ(cache.Find("task"), "plan");
    EXPECT_EQ(TuningCache(path, "m").Find("task"), std::nullopt);
  }
}

TEST(TuningCache, DefaultPathFollowsTheXdgStandard) {
  setenv("HOME", "/mine", 1);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(TuningCache::DefaultPath("plans"), "/mine/.cache/carole/plans");
  setenv("XDG_CACHE_HOME", "/var/cache", 1);
  EXPECT_EQ(TuningCache::DefaultPath("plans"), "/var/cache/carole/plans");
  setenv("XDG_CACHE_HOME", "relative", 1);
  unsetenv("HOME");
  EXPECT_EQ(TuningCache::DefaultPath("plans"), "");
}

}  // namespace
}  // namespace carole
