#include "io/image/jpeg/plane.h"

#include <algorithm>
#include <cmath>

namespace carole::io::jpeg {
namespace {

// What the fast transform leaves to the quantizers: 1, and sqrt(2) cos(k pi / 16) for k > 0.
constexpr double kScales[8] = {1.0, 1.387039845, 1.306562965, 1.175875602,
                               1.0, 0.785694958, 0.541196100, 0.275899379};

const std::array<int32_t, 64>& Scales() {
  static const std::array<int32_t, 64> scales = [] {
    std::array<int32_t, 64> all{};
    for (int i = 0; i < 64; ++i)
      all[i] = static_cast<int32_t>(std::lround(kScales[i / 8] * kScales[i % 8] * (1 << 14)));
    return all;
  }();
  return scales;
}

}  // namespace

void Plane::Open(const Shape& shape, const std::array<uint16_t, 64>& quantizers) {
  shape_ = shape;
  for (int i = 0; i < 64; ++i) {  // two bits after the point
    multipliers_[i] = static_cast<int16_t>((Scales()[i] * quantizers[i] + (1 << 11)) >> 12);
  }
  const size_t blocks = static_cast<size_t>(kChunk) * shape.unit_columns * shape.unit_rows;
  // One more: blocks are transformed in pairs.
  coefficients_.resize((blocks + 1) * kBlockStride);
  last_.resize(blocks + 1);
  stride_ = ptrdiff_t{shape.units} * shape.unit_columns * block_width() + 2 * kRowMargin;
  const size_t bytes = stride_ * num_rows();
  if (samples_.size() < bytes) samples_.resize(bytes);
  whole_.resize(size_t{64} * kChunk * shape.unit_columns);
}

McuBlock Plane::BlockAt(int row, int column) {
  const int at = row * kChunk * shape_.unit_columns + column;
  return {.coefficients = coefficients_.data() + ptrdiff_t{at} * kBlockStride,
          .last = last_.data() + at,
          .step = shape_.unit_columns};
}

uint8_t* Plane::Samples(int y) { return samples_.data() + y % num_rows() * stride_ + kRowMargin; }

const uint8_t* Plane::Row(int y) const {
  const int nearest = std::clamp(y, 0, shape_.height - 1);
  return samples_.data() + nearest % num_rows() * stride_ + kRowMargin -
         ptrdiff_t{shape_.first_unit} * shape_.unit_columns * block_width();
}

void Plane::Transform(const PixelKernels& kernels, int unit_row, int unit, int count) {
  for (int row = 0; row < shape_.unit_rows; ++row) {
    const McuBlock first = BlockAt(row, 0);
    const BlockRow blocks{first.coefficients, first.last, count * shape_.unit_columns};
    uint8_t* to = Samples((unit_row * shape_.unit_rows + row) * block_height()) +
                  ptrdiff_t{unit} * shape_.unit_columns * block_width();
    if (shape_.box_width * shape_.box_height == 1) {
      kernels.inverse_dct(blocks, multipliers_.data(), to, stride_);
      continue;
    }
    const ptrdiff_t whole_stride = ptrdiff_t{blocks.count} * 8;
    kernels.inverse_dct(blocks, multipliers_.data(), whole_.data(), whole_stride);
    for (int y = 0; y < block_height(); ++y) {
      kernels.means({.samples = whole_.data() + y * shape_.box_height * whole_stride,
                     .stride = whole_stride,
                     .width = shape_.box_width,
                     .height = shape_.box_height,
                     .count = blocks.count * block_width()},
                    to + y * stride_);
    }
  }
}

void Plane::ExtendSideways(int unit_row) {
  const int unit_width = shape_.unit_columns * block_width();
  const int right = shape_.width - shape_.first_unit * unit_width;  // may be far beyond
  for (int i = 0; i < shape_.unit_rows * block_height(); ++i) {
    uint8_t* row = Samples(unit_row * shape_.unit_rows * block_height() + i);
    if (shape_.first_unit == 0) row[-1] = row[0];
    if (right <= shape_.units * unit_width) row[right] = row[right - 1];
  }
}

}  // namespace carole::io::jpeg
