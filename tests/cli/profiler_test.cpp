// The ranges that NVIDIA's profilers show, seen by a fake profiler.
#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;

class ProfilerTest : public CliTest {};

TEST_F(ProfilerTest, SeesStepsPhasesAndBuckets) {
#ifndef CAROLE_FAKE_PROFILER
  GTEST_SKIP() << "skipped: this build has no NVTX";
#else
  const std::string ranges = folder_ / "ranges";
  const ProcessResult run = RunProcess(WithEnvironment(
      {std::string("NVTX_INJECTION64_PATH=") + CAROLE_FAKE_PROFILER,
       "CAROLE_FAKE_PROFILER=" + ranges},
      CaroleWords(TrainWords("", {"--backend=reference", "--max_number_of_steps=2"}), 2)));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string text = "\n" + ReadText(ranges);
  for (const char* range :
       {"\nstep 0\n", "\nstep 1\n", "\n> input, step 1\n", "\n> forward, step 1\n",
        "\n> backward, step 1\n", "\n> optimizer, step 1\n"})
    EXPECT_THAT(text, HasSubstr(range));
  EXPECT_THAT(text, ::testing::ContainsRegex("\n> all_reduce of [0-9]+ fp32, tag gradients, step "
                                             "1, bucket 0"));
#endif
}

}  // namespace
}  // namespace carole::testing
