#include "io/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace carole::io {
namespace {

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(MaskedCrc32c("123456789"), 0xC78AB0E5u);
  EXPECT_EQ(MaskedCrc32c(""), 0xA282EAD8u);
  EXPECT_EQ(MaskedCrc32c(std::string(8, '\0')), 0x07980329u);
}

TEST(Crc32c, GoesOnAfterEarlierBytes) {
  EXPECT_EQ(Crc32c("6789", Crc32c("12345")), Crc32c("123456789"));
}

TEST(Crc32c, UnmaskUndoesMask) {
  for (uint32_t crc : {0u, 1u, 0xE3069283u, 0xFFFFFFFFu}) EXPECT_EQ(UnmaskCrc(MaskCrc(crc)), crc);
}

}  // namespace
}  // namespace carole::io
