#include "src/export/common/window_padding.h"

#include <gtest/gtest.h>

namespace carole::exporting {
namespace {

TEST(NamedPadding, NamesThatOfTensorFlow) {
  EXPECT_EQ(NameOf({}, {8, 8}, {3, 3}, {1, 1}), NamedPadding::kValid);
  EXPECT_EQ(NameOf({1, 1, 1, 1}, {8, 8}, {3, 3}, {1, 1}), NamedPadding::kSame);
  // "SAME" adds one pixel at the bottom and the right for an even image, and two for an odd one.
  EXPECT_EQ(NameOf({0, 0, 1, 1}, {8, 8}, {3, 3}, {2, 2}), NamedPadding::kSame);
  EXPECT_EQ(NameOf({1, 1, 1, 1}, {8, 8}, {3, 3}, {2, 2}), NamedPadding::kOther);
  EXPECT_EQ(NameOf({1, 1, 1, 1}, {9, 9}, {3, 3}, {2, 2}), NamedPadding::kSame);
  EXPECT_EQ(NameOf({1, 0, 1, 0}, {8, 8}, {3, 1}, {1, 1}), NamedPadding::kSame);
}

}  // namespace
}  // namespace carole::exporting
