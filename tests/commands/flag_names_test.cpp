#include "src/commands/cli/flag_names.h"

#include <gtest/gtest.h>

#include "src/core/error.h"

namespace carole::commands {
namespace {

TEST(FlagNames, ReplacesEachOptionByItsFlag) {
  EXPECT_EQ(WithFlags(Option("batch_size") + ": got 0; use " + Option("precision", "fp32") + "."),
            "--batch_size: got 0; use --precision=fp32.");
  EXPECT_EQ(WithFlags(Option("adam_beta1") + Option("seed")), "--adam_beta1--seed");
}

TEST(FlagNames, KeepsAllOtherText) {
  for (const char* text : {"", "plain", "$", "$(", "$()", "$(HOME)", "$(a b)", "$(a", "50 $(US)",
                           "$HOME/x(y)", "$(id)", "\x1f$(id", "\x1f$()"})
    EXPECT_EQ(WithFlags(text), text);
  EXPECT_EQ(WithFlags("$(" + Option("seed")), "$(--seed");
}

}  // namespace
}  // namespace carole::commands
