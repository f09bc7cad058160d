// The samples of one component (Y, Cb or Cr) of the image that is being decoded. A plane is a ring
// of two rows of minimum coded units (MCUs): each row overwrites the row before the previous one.
#pragma once

#include <cstdint>
#include <vector>

#include "io/image/jpeg/baseline.h"
#include "io/image/jpeg/pixels_simd.h"

namespace carole::io::jpeg {

class Plane {
 public:
  // Number of MCUs that are decoded before their blocks are transformed together.
  static constexpr int kChunkMcus = 8;

  struct Shape {
    int width = 0;  // of the whole component, in samples, after averaging boxes
    int height = 0;
    int box_width = 1;  // each box of decoded samples is replaced by its mean
    int box_height = 1;
    int mcu_block_columns = 1;  // blocks of this component in an MCU
    int mcu_block_rows = 1;
    int first_mcu = 0;  // the MCU columns [first_mcu, first_mcu + num_mcus) are decoded
    int num_mcus = 0;
  };
  // Begins an image. `quantizers` are in natural order.
  void Open(const Shape& shape, const std::array<uint16_t, 64>& quantizers);

  // Returns where the block (row, column) of an MCU goes. Its tables are not set.
  McuBlock BlockAt(int row, int column);
  // Transforms the blocks of the last `count` decoded MCUs to samples. They are the MCUs from `mcu`
  // on, counted from first_mcu, in MCU row `mcu_row`.
  void Transform(const PixelKernels& kernels, int mcu_row, int mcu, int count);
  // Repeats the outermost samples of this MCU row once beyond the left and right edge of the image.
  void ExtendSideways(int mcu_row);

  // Returns row y of the component, or the nearest row inside the component. The result may be
  // indexed with a column number of the component, within the decoded MCUs.
  const uint8_t* Row(int y) const;
  int width() const { return shape_.width; }

 private:
  int block_width() const { return 8 / shape_.box_width; }
  int block_height() const { return 8 / shape_.box_height; }
  int num_rows() const { return shape_.mcu_block_rows * 2 * block_height(); }  // in the ring
  uint8_t* Samples(int y);

  Shape shape_;
  std::array<int16_t, 64> multipliers_{};
  std::vector<int16_t> coefficients_;
  std::vector<uint8_t> last_nonzero_;
  std::vector<uint8_t> samples_;
  std::vector<uint8_t> full_size_;  // samples of a chunk before boxes are averaged
  ptrdiff_t stride_ = 0;
};

}  // namespace carole::io::jpeg
