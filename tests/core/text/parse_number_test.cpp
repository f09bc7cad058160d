#include "src/core/text/parse_number.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace carole {
namespace {

TEST(ParseNumber, ParsesTheWholeTextOrNothing) {
  EXPECT_EQ(ParseNumber<int>("-12"), -12);
  EXPECT_EQ(ParseNumber<uint64_t>("ff", 16), 255U);
  EXPECT_EQ(ParseNumber<double>("1e-3"), 1e-3);
  for (const char* text : {"", "-", " 1", "1 ", "+1", "12abc", "1.5", "99999999999"})
    EXPECT_EQ(ParseNumber<int>(text), std::nullopt) << text;
  for (const char* text : {"", "1e", "1,5", "1e999"})
    EXPECT_EQ(ParseNumber<double>(text), std::nullopt) << text;
}

}  // namespace
}  // namespace carole
