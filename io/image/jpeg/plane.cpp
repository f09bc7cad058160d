#include "io/image/jpeg/plane.h"

#include <algorithm>
#include <cmath>

namespace carole::io::jpeg {
namespace {

// Factors that the fast transform expects in the quantizers: 1, and sqrt(2) cos(k pi / 16) for k >
// 0.
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
  for (int i = 0; i < 64; ++i) {  // fixed point with two fractional bits
    multipliers_[i] = static_cast<int16_t>((Scales()[i] * quantizers[i] + (1 << 11)) >> 12);
  }
  const size_t blocks =
      static_cast<size_t>(kChunkMcus) * shape.mcu_block_columns * shape.mcu_block_rows;
  // One block more, because blocks are transformed in pairs.
  coefficients_.resize((blocks + 1) * kBlockStride);
  last_nonzero_.resize(blocks + 1);
  stride_ = ptrdiff_t{shape.num_mcus} * shape.mcu_block_columns * block_width() + 2 * kRowMargin;
  const size_t bytes = stride_ * num_rows();
  if (samples_.size() < bytes) samples_.resize(bytes);
  full_size_.resize(size_t{64} * kChunkMcus * shape.mcu_block_columns);
}

McuBlock Plane::BlockAt(int row, int column) {
  const int at = row * kChunkMcus * shape_.mcu_block_columns + column;
  return {.coefficients = coefficients_.data() + ptrdiff_t{at} * kBlockStride,
          .last_nonzero = last_nonzero_.data() + at,
          .step = shape_.mcu_block_columns};
}

uint8_t* Plane::Samples(int y) { return samples_.data() + y % num_rows() * stride_ + kRowMargin; }

const uint8_t* Plane::Row(int y) const {
  const int nearest = std::clamp(y, 0, shape_.height - 1);
  return samples_.data() + nearest % num_rows() * stride_ + kRowMargin -
         ptrdiff_t{shape_.first_mcu} * shape_.mcu_block_columns * block_width();
}

void Plane::Transform(const PixelKernels& kernels, int mcu_row, int mcu, int count) {
  for (int row = 0; row < shape_.mcu_block_rows; ++row) {
    const McuBlock first = BlockAt(row, 0);
    const BlockRow blocks{first.coefficients, first.last_nonzero, count * shape_.mcu_block_columns};
    uint8_t* to = Samples((mcu_row * shape_.mcu_block_rows + row) * block_height()) +
                  ptrdiff_t{mcu} * shape_.mcu_block_columns * block_width();
    if (shape_.box_width * shape_.box_height == 1) {
      kernels.inverse_dct(blocks, multipliers_.data(), to, stride_);
      continue;
    }
    const ptrdiff_t full_stride = ptrdiff_t{blocks.count} * 8;
    kernels.inverse_dct(blocks, multipliers_.data(), full_size_.data(), full_stride);
    for (int y = 0; y < block_height(); ++y) {
      kernels.box_means({.samples = full_size_.data() + y * shape_.box_height * full_stride,
                         .stride = full_stride,
                         .width = shape_.box_width,
                         .height = shape_.box_height,
                         .count = blocks.count * block_width()},
                        to + y * stride_);
    }
  }
}

void Plane::ExtendSideways(int mcu_row) {
  const int mcu_width = shape_.mcu_block_columns * block_width();
  const int right =
      shape_.width - shape_.first_mcu * mcu_width;  // may be far to the right of the decoded MCUs
  for (int i = 0; i < shape_.mcu_block_rows * block_height(); ++i) {
    uint8_t* row = Samples(mcu_row * shape_.mcu_block_rows * block_height() + i);
    if (shape_.first_mcu == 0) row[-1] = row[0];
    if (right <= shape_.num_mcus * mcu_width) row[right] = row[right - 1];
  }
}

}  // namespace carole::io::jpeg
