// The samples of one component: two rows of minimum coded units of it, where the next one is
// decoded over the last but one.
#pragma once

#include <cstdint>
#include <vector>

#include "io/jpeg/baseline.h"
#include "io/jpeg/pixels_simd.h"

namespace carole::io::jpeg {

class Plane {
 public:
  // Units that are decoded before their blocks are transformed.
  static constexpr int kChunk = 8;

  struct Shape {
    int width = 0;  // of the whole component, in samples
    int height = 0;
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
  uint8_t* Samples(int y);

  Shape shape_;
  std::array<int16_t, 64> multipliers_{};
  std::vector<int16_t> coefficients_;
  std::vector<uint8_t> last_;
  std::vector<uint8_t> samples_;
  ptrdiff_t stride_ = 0;
};

}  // namespace carole::io::jpeg
