#include "src/core/text/unique_names.h"

#include <gtest/gtest.h>

namespace carole {
namespace {

TEST(UniqueNames, NumbersRepeatedNames) {
  UniqueNames names;
  EXPECT_EQ(names.Take("a"), "a");
  EXPECT_EQ(names.Take("a_1"), "a_1");
  EXPECT_EQ(names.Take("a"), "a_2");
  EXPECT_EQ(names.Take("a"), "a_3");
}

}  // namespace
}  // namespace carole
