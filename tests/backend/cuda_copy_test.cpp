// Copies for libraries that want more channels than an image has, on the emulated GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "src/backend/cuda/copy.h"
#include "src/core/float16.h"

namespace carole::cuda {
namespace {

template <typename Element>
void ExpectPadded(DType type, int64_t x_channels, int64_t channels, const Padding& padding) {
  const int64_t h = 5, w = 7;
  const Shape x_shape{3, x_channels, h, w};
  const Shape y_shape{3, channels, h + padding.top + padding.bottom,
                      w + padding.left + padding.right};
  std::vector<Element> x(x_shape.size()), y(y_shape.size(), Element{9});
  std::iota(x.begin(), x.end(), Element{10});
  Pad(nullptr, type, x.data(), x_shape, padding, y.data(), y_shape);
  size_t at = 0;
  for (int64_t n = 0; n < 3; ++n) {
    for (int64_t row = -padding.top; row < h + padding.bottom; ++row) {
      for (int64_t column = -padding.left; column < w + padding.right; ++column) {
        for (int64_t c = 0; c < channels; ++c, ++at) {
          const bool is_there = row >= 0 && row < h && column >= 0 && column < w && c < x_channels;
          const int64_t from = ((n * h + row) * w + column) * x_channels + c;
          ASSERT_EQ(y[at], is_there ? x[from] : Element{0})
              << n << " " << row << " " << column << " " << c;
        }
      }
    }
  }
}

TEST(Pad, PutsZerosForChannelsAndAroundImages) {
  for (const Padding& padding : {Padding{}, Padding{0, 0, 1, 1}, Padding{2, 1, 0, 3}}) {
    for (const int64_t channels : {1, 2, 3}) {
      ExpectPadded<uint32_t>(DType::kF32, channels, 4, padding);
      ExpectPadded<uint16_t>(DType::kBF16, channels, 4, padding);
      ExpectPadded<uint16_t>(DType::kF16, channels, 8, padding);
    }
    ExpectPadded<uint16_t>(DType::kBF16, 7, 8, padding);
    ExpectPadded<uint16_t>(DType::kBF16, 3, 3, padding);
  }
}

TEST(CastFilter, LeavesOutChannelsOfZeros) {
  const Shape from_shape{5, 4, 3, 2}, to_shape{5, 3, 3, 2};
  std::vector<Bf16> from(from_shape.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = Bf16(static_cast<float>(i));
  std::vector<float> to(to_shape.size(), -1);
  CastFilter(nullptr, DType::kBF16, from.data(), from_shape, to.data(), to_shape);
  for (size_t i = 0; i < to.size(); ++i)
    EXPECT_EQ(to[i], static_cast<float>(i / 3 * 4 + i % 3)) << i;
}

}  // namespace
}  // namespace carole::cuda
