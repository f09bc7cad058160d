// Tests of the recorder and of the model of crashes, with shell commands whose states are known.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "tests/durability/crash_states.h"
#include "tests/support/temporary_folder.h"

namespace carole::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class CrashStatesModelTest : public ::testing::Test {
 protected:
  // Runs a shell script in the folder. Returns the states after it, as text: "name=content" of each
  // file in brackets.
  std::set<std::string> StatesOf(const std::string& script) {
    Recorder recorder(root_);
    const TraceResult result =
        RunTraced({"sh", "-ec", "cd " + root_ + "; " + script}, root_, recorder);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(recorder.unsupported(), IsEmpty());
    std::set<std::string> states;
    CrashOptions options{.is_ignored = [](const std::string&, size_t) { return false; }};
    // Only states after the last operation count here.
    options.stage = [&](size_t cut) { return cut == recorder.ops().size() ? 1 : 0; };
    ForEachCrashState(recorder.before(), recorder.ops(), options, [&](const CrashState& state) {
      if (state.cut != recorder.ops().size()) return;
      std::string text;
      for (const auto& [path, content] : state.files)
        text += "[" + path + "=" + content->bytes + "]";
      states.insert(text);
    });
    return states;
  }

  TemporaryFolder folder_;
  const std::string root_ = std::filesystem::canonical(folder_.path());
};

TEST_F(CrashStatesModelTest, AFileThatWasNotSyncedMayBeMissingEmptyOrGarbage) {
  EXPECT_THAT(StatesOf("printf ab > f"),
              UnorderedElementsAre("", "[f=]", "[f=ab]", std::string("[f=\0\0]", 6), "[f=\xA5\xA5]",
                                   std::string("[f=a\0]", 6), "[f=a\xA5]"));
}

TEST_F(CrashStatesModelTest, SyncingTheFileDoesNotSaveItsName) {
  EXPECT_THAT(StatesOf("printf ab > f; sync f"), UnorderedElementsAre("", "[f=ab]"));
}

TEST_F(CrashStatesModelTest, SyncingFileAndFolderSavesBoth) {
  EXPECT_THAT(StatesOf("printf ab > f; sync f; sync ."), UnorderedElementsAre("[f=ab]"));
}

TEST_F(CrashStatesModelTest, ARenameIsAtomicAndUndoneWithoutASyncOfTheFolder) {
  WriteText(root_ + "/f", "old");
  EXPECT_THAT(StatesOf("printf new > t; sync t; mv t f"),
              UnorderedElementsAre("[f=old]", "[f=old][t=new]", "[f=new]"));
}

TEST_F(CrashStatesModelTest, ARenameBeforeTheContentIsSyncedLosesIt) {
  WriteText(root_ + "/f", "old");
  EXPECT_TRUE(StatesOf("printf new > t; mv t f").contains("[f=]"));
}

TEST_F(CrashStatesModelTest, ANewFolderIsLostWithAllThatItHolds) {
  EXPECT_THAT(StatesOf("mkdir d; printf ab > d/f; sync d/f; sync d"),
              UnorderedElementsAre("", "[d/f=ab]"));
}

TEST_F(CrashStatesModelTest, ARemovedFileMayComeBack) {
  WriteText(root_ + "/f", "old");
  EXPECT_THAT(StatesOf("rm f"), UnorderedElementsAre("", "[f=old]"));
  EXPECT_THAT(StatesOf("sync ."), UnorderedElementsAre(""));
}

TEST_F(CrashStatesModelTest, EachBlockOfAWriteMayBeMissing) {
  const std::set<std::string> states = StatesOf("head -c 8192 /dev/zero | tr '\\0' x > f; sync .");
  const std::string x(4096, 'x'), zeros(4096, '\0');
  EXPECT_TRUE(states.contains("[f=" + x + x + "]"));
  EXPECT_TRUE(states.contains("[f=" + x + zeros + "]"));
  EXPECT_TRUE(states.contains("[f=" + zeros + x + "]"));
}

}  // namespace
}  // namespace carole::testing
