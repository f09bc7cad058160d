#include "src/train/survival/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "io/checkpoint/checkpoint_folder.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "tests/support/temporary_folder.h"

namespace carole::train {
namespace {

using Kind = Claim::Kind;

TEST(ChooseSaver, TakesTheLowestRankWithTheNewestWholeState) {
  EXPECT_EQ(ChooseSaver(std::vector<Claim>{}), std::nullopt);
  EXPECT_EQ(ChooseSaver(std::vector<Claim>{{2, Kind::kWhole, 7}, {1, Kind::kWhole, 7}}), 1);
  EXPECT_EQ(ChooseSaver(std::vector<Claim>{{0, Kind::kWhole, 7}, {1, Kind::kWhole, 8}}), 1);
  EXPECT_EQ(ChooseSaver(std::vector<Claim>{{0, Kind::kNone, 8}, {1, Kind::kWhole, 7}}), 1);
  EXPECT_EQ(ChooseSaver(std::vector<Claim>{{0, Kind::kNone, 8}}), std::nullopt);
}

TEST(ChooseSaver, OneVoidClaimIsEnough) {
  EXPECT_EQ(ChooseSaver(std::vector<Claim>{{0, Kind::kWhole, 7}, {1, Kind::kVoid, 7}}),
            std::nullopt);
}

TEST(SurvivorsFolder, KeepsClaimsOfOneRun) {
  const TemporaryFolder folder;
  const std::string train_dir = folder.path();
  const SurvivorsFolder run(train_dir, 5), other(train_dir, 6);
  EXPECT_FALSE(run.IsVisible());
  run.Create();
  EXPECT_TRUE(run.IsVisible());
  EXPECT_FALSE(other.IsVisible());
  run.Write({1, Kind::kNone, 3});
  run.Write({1, Kind::kWhole, 4});  // replaces the first
  other.Write({2, Kind::kWhole, 9});
  const std::vector<Claim> claims = run.Read();
  ASSERT_EQ(claims.size(), 1);
  EXPECT_EQ(claims[0].rank, 1);
  EXPECT_EQ(claims[0].kind, Kind::kWhole);
  EXPECT_EQ(claims[0].step, 4);
  EXPECT_EQ(run.Result(), "");
  run.WriteResult("saved");
  EXPECT_EQ(run.Result(), "saved");
  EXPECT_EQ(other.Result(), "");
  run.Create();  // the next run of this name finds nothing old
  EXPECT_TRUE(run.Read().empty());
  EXPECT_EQ(run.Result(), "");
  run.Remove();
  EXPECT_FALSE(std::filesystem::exists(train_dir + "/.survivors"));
}

TEST(LockForRun, NeedsNoFolder) {
  const TemporaryFolder folder;
  EXPECT_NE(LockForRun(folder.path()), nullptr);
}

TEST(LockForRun, WaitsForGuardians) {
  const TemporaryFolder folder;
  const std::string train_dir = folder.path();
  const SurvivorsFolder run(train_dir, 5);
  run.Create();
  FileDescriptor first = run.KeepNextRunOut(), second = run.KeepNextRunOut();
  ASSERT_TRUE(first.is_open() && second.is_open());
  std::atomic<bool> is_saved = false;
  std::thread guardians([&] {
    first = FileDescriptor();
    EXPECT_TRUE(WaitForEndOfRun(train_dir, 60));
    is_saved = true;
    second = FileDescriptor();
  });
  EXPECT_NE(LockForRun(train_dir), nullptr);
  EXPECT_TRUE(is_saved);
  guardians.join();
}

TEST(LockForRun, RefusesTheFolderOfALiveRun) {
  const TemporaryFolder folder;
  const std::string train_dir = folder.path();
  const SurvivorsFolder run(train_dir, 5);
  run.Create();
  const auto lock = LockForRun(train_dir);
  const FileDescriptor guardian = run.KeepNextRunOut();
  EXPECT_THROW(LockForRun(train_dir), ConfigError);
  EXPECT_FALSE(WaitForEndOfRun(train_dir, 0));
}

TEST(SurvivorsFolder, LetsOneGuardianWrite) {
  const TemporaryFolder folder;
  const SurvivorsFolder run(folder.path(), 5);
  run.Create();
  std::optional<FileDescriptor> lock = run.LockForWriting(0);
  ASSERT_TRUE(lock && lock->is_open());
  EXPECT_FALSE(run.LockForWriting(0).has_value());
  lock.reset();
  EXPECT_TRUE(run.LockForWriting(0));
}

TEST(SurvivorsFolder, CanBeOpenedByEachGuardian) {
  const TemporaryFolder folder;
  const SurvivorsFolder first(folder / "a/b", 5), second(folder / "a/b", 5);
  first.Open();
  first.Write({1, Kind::kWhole, 4});
  second.Open();
  EXPECT_EQ(second.Read().size(), 1);
  const std::optional<FileDescriptor> lock = first.LockForWriting(0);
  EXPECT_TRUE(lock && lock->is_open());
  EXPECT_FALSE(second.LockForWriting(0).has_value());
}

TEST(FallbackFolder, DependsOnTheTrainDir) {
  EXPECT_TRUE(FallbackFolder("/w", "runs/a").starts_with("/w/survivors-a-"));
  for (const std::string& same : {std::string("runs/a/"), std::string("./runs/../runs/a"),
                                  std::filesystem::absolute("runs/a").string()})
    EXPECT_EQ(FallbackFolder("/w", "runs/a"), FallbackFolder("/w", same));
  EXPECT_NE(FallbackFolder("/w", "runs/a"), FallbackFolder("/w", "other/a"));
}

TEST(FallbackFolder, IsRemovedWhenTheRunHasItsStep) {
  const TemporaryFolder folder;
  const std::string kept = FallbackFolder(folder.path(), "run");
  const auto tidy = [&](int64_t step) {
    ::testing::internal::CaptureStderr();
    TidyFallbackFolder(folder.path(), "run", step);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(tidy(0), "");
  std::filesystem::create_directories(kept);
  const std::string path = io::CheckpointPath(kept, 7);
  WriteWholeFile(path, "");
  EXPECT_THAT(tidy(6), ::testing::HasSubstr(path));
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(tidy(7), "");
  EXPECT_FALSE(std::filesystem::exists(kept));
}

TEST(MakeRunId, Differs) { EXPECT_NE(MakeRunId(), MakeRunId()); }

}  // namespace
}  // namespace carole::train
