#include "src/tensor/tensor.h"

#include <gmock/gmock.h>

#include <memory>

namespace carole {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// An opaque layout whose tensors have a given number of bytes, including padding.
class Padded : public OpaqueLayout {
 public:
  explicit Padded(size_t bytes) : bytes_(bytes) {}
  size_t bytes() const override { return bytes_; }
  bool Equals(const OpaqueLayout& other) const override {
    const auto* o = dynamic_cast<const Padded*>(&other);
    return o != nullptr && o->bytes_ == bytes_;
  }
  std::string Name() const override { return "padded"; }

 private:
  size_t bytes_;
};

Layout MakePadded(size_t bytes) { return Layout::Opaque(std::make_shared<Padded>(bytes)); }

TEST(Layout, PlainStridesFollowTheOrderInMemory) {
  const Shape activation{2, 3, 4, 5};  // N,C,H,W
  EXPECT_EQ(PlainStrides(activation, Layout::RowMajor()), (Shape{60, 20, 5, 1}));
  EXPECT_EQ(PlainStrides(activation, Layout::Nhwc()), (Shape{60, 1, 15, 3}));
  const Shape filter{6, 3, 4, 5};  // K,C,R,S in memory as R,S,C,K
  EXPECT_EQ(PlainStrides(filter, Layout::Filter()), (Shape{1, 6, 90, 18}));
  const Shape matrix{6, 3};  // K,C in memory as C,K
  EXPECT_EQ(PlainStrides(matrix, Layout::Filter()), (Shape{1, 6}));
  EXPECT_EQ(PlainStrides(matrix, Layout::RowMajor()), (Shape{3, 1}));
  // For a rank that the layout does not define, the strides are row-major.
  EXPECT_EQ(PlainStrides({7}, Layout::Filter()), Shape{1});
  EXPECT_EQ(PlainStrides({2, 3}, Layout::Nhwc()), (Shape{3, 1}));
  EXPECT_EQ(PlainStrides({}, Layout::RowMajor()), Shape{});
}

TEST(Layout, OnlyPlainLayoutsHaveStrides) {
  for (const Layout& layout : {Layout::Any(), MakePadded(64)}) {
    EXPECT_FALSE(layout.is_plain());
    EXPECT_THAT(
        [&] {
          PlainStrides({2, 3}, layout);
        },
        ThrowsMessage<InternalError>(HasSubstr(layout.ToString())));
  }
}

TEST(Layout, PlainActivationDependsOnTheRank) {
  EXPECT_EQ(Layout::PlainActivation({1, 2, 3, 4}), Layout::Nhwc());
  EXPECT_EQ(Layout::PlainActivation({1, 2}), Layout::RowMajor());
  EXPECT_EQ(Layout::PlainActivation({}), Layout::RowMajor());
}

TEST(Layout, EqualityComparesOpaqueLayoutsByContent) {
  EXPECT_EQ(Layout::Nhwc(), Layout::Nhwc());
  EXPECT_NE(Layout::Nhwc(), Layout::RowMajor());
  EXPECT_NE(Layout::Any(), Layout::RowMajor());
  EXPECT_EQ(MakePadded(64), MakePadded(64)) << "two objects with the same content";
  EXPECT_NE(MakePadded(64), MakePadded(128));
  EXPECT_NE(MakePadded(64), Layout::Nhwc());
  const Layout one = MakePadded(64), copy = one;
  EXPECT_EQ(one, copy);
}

TEST(Layout, HasAName) {
  EXPECT_EQ(Layout::Any().ToString(), "any");
  EXPECT_EQ(Layout::RowMajor().ToString(), "row-major");
  EXPECT_EQ(Layout::Nhwc().ToString(), "nhwc");
  EXPECT_EQ(Layout::Filter().ToString(), "filter");
  EXPECT_EQ(MakePadded(1).ToString(), "padded");
}

TEST(Tensor, ByteSizeDependsOnTypeAndLayout) {
  EXPECT_EQ(ByteSize({2, 3, 4, 5}, DType::kF32, Layout::Nhwc()), 480u);
  EXPECT_EQ(ByteSize({2, 3}, DType::kF64, Layout::Filter()), 48u);
  EXPECT_EQ(ByteSize({}, DType::kI32, Layout::RowMajor()), 4u);
  EXPECT_EQ(ByteSize({3, 0}, DType::kF32, Layout::RowMajor()), 0u);
  EXPECT_EQ(ByteSize({2, 3}, DType::kF32, MakePadded(192)), 192u) << "includes padding";
}

TEST(Tensor, RejectsElementsOfTheWrongSize) {
  float memory[6] = {};
  const Tensor t{.data = reinterpret_cast<std::byte*>(memory), .shape = {2, 3}};
  EXPECT_EQ(t.as<float>(), memory);
  EXPECT_EQ(t.size(), 6);
  EXPECT_EQ(t.bytes(), 24u);
  EXPECT_THAT([&] { t.as<double>(); },
              ThrowsMessage<InternalError>(HasSubstr("tensor of fp32 read as another type")));
}

}  // namespace
}  // namespace carole
