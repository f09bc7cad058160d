#include "src/tensor/buffer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>

#include "src/core/error.h"

namespace carole {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The sizes are small, close to the size of a huge page, and large.
TEST(Buffer, IsFilledWithZerosAndAligned) {
  for (size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{1000}, (size_t{2} << 20) - 1,
                       size_t{2} << 20, (size_t{5} << 20) + 3}) {
    const Buffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % Buffer::kAlignment, 0u) << bytes;
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes, [](std::byte b) {
      return b == std::byte{0};
    })) << bytes;
    std::fill_n(buffer.data(), bytes, std::byte{1});
  }
}

TEST(Buffer, HasNoMemoryIfEmpty) {
  EXPECT_EQ(Buffer().data(), nullptr);
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

TEST(Buffer, CanBeMoved) {
  Buffer a(100);
  std::byte* const data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.size(), 100u);
  b = Buffer(10);
  EXPECT_EQ(b.size(), 10u);
}

TEST(Buffer, RejectsImpossibleSizes) {
  for (size_t bytes : {size_t{1} << 60, SIZE_MAX - 100, SIZE_MAX}) {
    EXPECT_THAT([&] { Buffer{bytes}; }, ThrowsMessage<ConfigError>(AllOf(
                                            HasSubstr("[memory] buffer: cannot allocate"),
                                            HasSubstr("memory; use a smaller \x1f$(batch_size)"))));
  }
  EXPECT_THAT([] { Buffer{size_t{1} << 60}; },
              ThrowsMessage<ConfigError>(HasSubstr("cannot allocate 1099511627776.0 MiB")));
}

TEST(Buffer, AlignUpRoundsToCacheLines) {
  EXPECT_EQ(AlignUp(0), 0u);
  EXPECT_EQ(AlignUp(1), 64u);
  EXPECT_EQ(AlignUp(64), 64u);
  EXPECT_EQ(AlignUp(65), 128u);
}

}  // namespace
}  // namespace carole
