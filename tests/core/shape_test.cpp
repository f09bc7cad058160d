#include "src/core/shape.h"

#include <gmock/gmock.h>

#include <limits>
#include <vector>

#include "src/core/dtype.h"
#include "src/core/error.h"

namespace carole {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Shape, ScalarHasOneElement) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().size(), 1);
  EXPECT_EQ(Shape().ToString(), "[]");
}

TEST(Shape, SizeIsTheProductOfTheDimensions) {
  EXPECT_EQ((Shape{2, 64, 56, 56}.size()), 2 * 64 * 56 * 56);
  EXPECT_EQ((Shape{4, 0, 3}.size()), 0);
  EXPECT_EQ((Shape{2, 64, 56, 56}.ToString()), "[2,64,56,56]");
}

TEST(Shape, EqualityComparesRankAndSizes) {
  EXPECT_EQ((Shape{2, 3}), Shape(std::vector<int64_t>{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE(Shape{}, Shape{0});
  Shape changed{2, 3};
  changed[1] = 4;
  EXPECT_EQ(changed, (Shape{2, 4}));
}

TEST(Shape, OverflowIsAnError) {
  const int64_t half = int64_t{1} << 32;
  EXPECT_EQ((Shape{half / 2, half / 2}.size()), int64_t{1} << 62);
  EXPECT_THAT(
      [&] {
        (void)Shape({half, half}).size();
      },
      ThrowsMessage<InternalError>(HasSubstr("has too many elements")));
  EXPECT_EQ((Shape{std::numeric_limits<int64_t>::max()}.size()),
            std::numeric_limits<int64_t>::max());
}

TEST(Shape, RejectsNegativeSizesAndTooManyDimensions) {
  EXPECT_THAT([] { Shape({2, -1}); }, ThrowsMessage<InternalError>(HasSubstr("negative size -1")));
  EXPECT_THAT(
      [] {
        Shape({1, 1, 1, 1, 1, 1});
      },
      ThrowsMessage<InternalError>(HasSubstr("shape of rank 6, at most 5")));
}

TEST(DType, HasSizesAndNames) {
  EXPECT_EQ(SizeOf(DType::kF64), 8u);
  EXPECT_EQ(SizeOf(DType::kF32), 4u);
  EXPECT_EQ(SizeOf(DType::kI32), 4u);
  EXPECT_EQ(SizeOf(DType::kBF16), 2u);
  EXPECT_EQ(SizeOf(DType::kF16), 2u);
  EXPECT_EQ(SizeOf(DType::kU8), 1u);
  EXPECT_EQ(Name(DType::kBF16), "bf16");
}

}  // namespace
}  // namespace carole
