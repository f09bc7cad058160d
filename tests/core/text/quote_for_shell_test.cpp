#include "src/core/text/quote_for_shell.h"

#include <gtest/gtest.h>

namespace carole {
namespace {

TEST(QuoteForShell, QuotesWhatAShellReads) {
  EXPECT_EQ(QuoteForShell("--dataset_dir=/data/a_b-1.0,c:d@e%f+"),
            "--dataset_dir=/data/a_b-1.0,c:d@e%f+");
  EXPECT_EQ(QuoteForShell(""), "''");
  EXPECT_EQ(QuoteForShell("my photos"), "'my photos'");
  EXPECT_EQ(QuoteForShell("$(id)"), "'$(id)'");
  EXPECT_EQ(QuoteForShell("~/it's"), "'~/it'\\''s'");
}

}  // namespace
}  // namespace carole
