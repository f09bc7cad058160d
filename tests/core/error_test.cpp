#include "src/core/error.h"

#include <gmock/gmock.h>

#include <set>
#include <string>

#include "src/core/check.h"
#include "src/core/hash.h"
#include "src/core/shape.h"
#include "tests/support/text_of.h"

namespace carole {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Error, EveryTypeHasItsExitCodeAndKeepsItsText) {
  EXPECT_EQ(UsageError("a").code(), ExitCode::kUsage);
  EXPECT_EQ(DataError("a").code(), ExitCode::kData);
  EXPECT_EQ(CommError("a").code(), ExitCode::kUnavailable);
  EXPECT_EQ(DeviceError("a").code(), ExitCode::kUnavailable);
  EXPECT_EQ(DiskError("a").code(), ExitCode::kDisk);
  EXPECT_EQ(ConfigError("a").code(), ExitCode::kConfiguration);
  EXPECT_EQ(InternalError("a").code(), ExitCode::kInternal);
  EXPECT_STREQ(DataError("[io] x: bad").what(), "[io] x: bad");
}

TEST(Error, AProblemOfAnOptionSaysWhatWasGotAndWanted) {
  EXPECT_EQ(
      TextOf<UsageError>([] {
        throw UsageError({.tag = "optim",
                          .option = "momentum",
                          .problem = "out of range",
                          .got = 1.5,
                          .want = "less than 1",
                          .hint = "use " + Option("momentum", "0.9")});
      }),
      "[optim] \x1f$(momentum): out of range: got 1.5, want less than 1; use \x1f$(momentum)=0.9");
  EXPECT_STREQ(ConfigError({.tag = "data", .option = "dataset_dir", .want = "a folder"}).what(),
               "[data] \x1f$(dataset_dir): want a folder");
  EXPECT_STREQ(UsageError({.tag = "a", .option = "b", .got = "", .want = "text"}).what(),
               "[a] \x1f$(b): got nothing, want text");
  EXPECT_STREQ(UsageError({.tag = "a", .option = "b", .got = int64_t{-7}}).what(),
               "[a] \x1f$(b): got -7");
}

// Scripts rely on these numbers.
TEST(Error, ExitCodesAreThoseOfSysexits) {
  EXPECT_EQ(static_cast<int>(ExitCode::kOk), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::kUsage), 64);
  EXPECT_EQ(static_cast<int>(ExitCode::kData), 65);
  EXPECT_EQ(static_cast<int>(ExitCode::kUnavailable), 69);
  EXPECT_EQ(static_cast<int>(ExitCode::kInternal), 70);
  EXPECT_EQ(static_cast<int>(ExitCode::kDisk), 74);
  EXPECT_EQ(static_cast<int>(ExitCode::kSaved), 75);
  EXPECT_EQ(static_cast<int>(ExitCode::kConfiguration), 78);
}

TEST(Error, EveryCodeHasADifferentDescription) {
  const ExitCode codes[] = {ExitCode::kOk,          ExitCode::kUsage,        ExitCode::kData,
                            ExitCode::kUnavailable, ExitCode::kInternal,     ExitCode::kDisk,
                            ExitCode::kSaved,       ExitCode::kConfiguration};
  std::set<std::string> descriptions;
  for (ExitCode code : codes) descriptions.insert(Describe(code));
  EXPECT_EQ(descriptions.size(), std::size(codes));
  EXPECT_EQ(descriptions.count("unknown"), 0u);
  EXPECT_STREQ(Describe(ExitCode::kUnavailable), "a rank or a device is gone");
  EXPECT_STREQ(Describe(static_cast<ExitCode>(3)), "unknown");
}

TEST(Check, TextContainsLocationConditionAndReason) {
  const std::string text =
      TextOf<InternalError>([] { CAROLE_CHECK(1 > 2, "bucket {} is empty", 7); });
  EXPECT_THAT(text, AllOf(StartsWith("[check] "), HasSubstr("error_test.cpp:"),
                          EndsWith("1 > 2 does not hold: bucket 7 is empty")));
}

TEST(Check, EqualityPrintsBothValues) {
  const Shape got{2, 3}, want{3, 2};
  const std::string text =
      TextOf<InternalError>([&] { CAROLE_CHECK_EQ(got, want, "gradient of {}", "conv1"); });
  EXPECT_THAT(text,
              EndsWith("got == want does not hold: gradient of conv1: got [2,3], want [3,2]"));
}

TEST(Check, EvaluatesItsArgumentsOnceAndPassesIfTheConditionHolds) {
  int evaluated = 0;
  CAROLE_CHECK(++evaluated == 1, "never");
  CAROLE_CHECK_EQ(++evaluated, 2, "never");
  EXPECT_EQ(evaluated, 2);
}

// Published test vectors of 64-bit FNV-1a.
TEST(Hash, HasThePublishedValuesAndCanBeChained) {
  EXPECT_EQ(Fnv1a64(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(Fnv1a64("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(Fnv1a64("foobar"), 0x85944171f73967e8ULL);
  EXPECT_EQ(Fnv1a64("bar", Fnv1a64("foo")), Fnv1a64("foobar"));
  EXPECT_NE(Fnv1a64("\xff"), Fnv1a64("\x7f"));
}

}  // namespace
}  // namespace carole
