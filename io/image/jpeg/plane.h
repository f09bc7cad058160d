// The samples of one component: two rows of minimum coded units of it, where the next one is
// decoded over the last but one.
#pragma once

#include <cstdint>
#include <vector>

#include "io/image/jpeg/baseline.h"
#include "io/image/jpeg/pixels_simd.h"

namespace carole::io::jpeg {

class Plane {
 public:
  // Units that are decoded before their blocks are transformed.
  static constexpr int kChunk = 8;

  struct Shape {
    int width = 0;  // of the whole component, in samples
    int height = 0;
    int box_width = 1;  // of decoded samples, whose mean is one of the component as wanted here
    int box_height = 1;
    int unit_columns = 1;  // blocks of a minimum coded unit
    int unit_rows = 1;
    int first_unit = 0;  // columns of units that are decoded
    int units = 0;
  };
  void Open(const Shape& shape, const std::array<uint16_t, 64>& quantizers);

  // Where a unit's block goes.
  McuBlock BlockAt(int row, int column);
  // Turns the blocks of `count` units into samples. `unit` counts from first_unit.
  void Transform(const PixelKernels& kernels, int unit_row, int unit, int count);
  // Repeats the outermost samples of this row of units beyond the edges of the image.
  void ExtendSideways(int unit_row);

  // Row y of the component, or the nearest one that it has; [column] is right for columns of the
  // units that are decoded.
  const uint8_t* Row(int y) const;
  int width() const { return shape_.width; }

 private:
  int block_width() const { return 8 / shape_.box_width; }
  int block_height() const { return 8 / shape_.box_height; }
  int num_rows() const { return shape_.unit_rows * 2 * block_height(); }  // that are kept
  uint8_t* Samples(int y);

  Shape shape_;
  std::array<int16_t, 64> multipliers_{};
  std::vector<int16_t> coefficients_;
  std::vector<uint8_t> last_;
  std::vector<uint8_t> samples_;
  std::vector<uint8_t> whole_;  // samples of a chunk before they become means
  ptrdiff_t stride_ = 0;
};

}  // namespace carole::io::jpeg
