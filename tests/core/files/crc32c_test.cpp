#include "src/core/files/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace carole {
namespace {

TEST(Crc32c, HasKnownValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(MaskedCrc32c("123456789"), 0xC78AB0E5u);
  EXPECT_EQ(MaskedCrc32c(""), 0xA282EAD8u);
  EXPECT_EQ(MaskedCrc32c(std::string(8, '\0')), 0x07980329u);
}

}  // namespace
}  // namespace carole
