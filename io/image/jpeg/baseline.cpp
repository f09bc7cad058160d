// How the JPEG decoder works: the data flow through the files of this folder.
//
// The problem. Training on photos needs many CPU cores to decode them: even with this decoder, 8
// GPUs need 44 to 128 cores. Three facts help:
//   - Training needs a crop of a photo, not all of it. In a baseline JPEG the entropy-coded data
//     must be parsed from the beginning, but most of the other work can be skipped for blocks
//     outside the crop.
//   - Nearly all photos are of one kind: baseline, YCbCr, 8 bits. All other kinds, and all damaged
//     streams, go to libjpeg (../jpeg.cpp). So this decoder needs no error messages and few cases.
//   - The result must equal TensorFlow's, which is libjpeg-turbo's, to the bit. Each step below
//     therefore repeats libjpeg's integer arithmetic, and tests compare both.
//
// Words. A JPEG codes each component (Y, Cb, Cr) in blocks of 8x8 samples. A *minimum coded unit*
// (MCU) holds the blocks of one area of the image. With 4:2:0 an MCU is 16x16 pixels: 4 blocks of
// Y, 1 of Cb, 1 of Cr. MCUs follow each other row by row. A *restart marker* resets the coder's
// state.
//
//   scan bytes ─ McuReader ─ EntropyKernels ─ Plane ───────────── PixelKernels ─ rows of pixels
//                stuffed      Huffman codes    coefficients of 8   upsampling,
//                zeros        to coefficients  MCUs, inverse DCT,  colors
//                removed                       rows of samples
//
//   mcu_reader     Copies the scan up to the next restart marker and removes the stuffed zero bytes
//                  (ff 00 stands for ff), so that the bit reader needs no test for markers.
//   entropy_simd   Decodes or skips MCUs, with the tables of huffman.h. Skipping parses the bits
//                  without storing coefficients.
//   plane          Holds one component. It collects the coefficients of 8 MCUs (kChunkMcus), then
//                  runs the inverse DCT (idct_simd) over them, which fills vectors. Samples go to a
//                  ring of two MCU rows, so memory stays small and in the cache.
//   pixels_simd    Upsamples chroma and converts rows of YCbCr to RGB.
//
// Example. The image has 500x375 pixels (width x height), 4:2:0. The wanted region has 224x224
// pixels at left 150, top 100. Upsampling also reads the neighbor samples, so the MCUs must cover
// the columns 149 to 374 and the rows 99 to 324: MCU columns 9 to 23 and MCU rows 6 to 20 of 32 x
// 24 MCUs. Decode() then
//   1. skips 6 * 32 + 9 = 201 MCUs,
//   2. for each of the 15 MCU rows: decodes 15 MCUs (as 8 + 7), writes the rows of pixels that are
//      now complete, and skips the 17 MCUs to the next row's first one,
//   3. stops after MCU row 20. It never decodes the last three MCU rows.
// After MCU row 6 the samples reach down to pixel row 111. Row 111 itself needs the chroma row
// below it, so rows 100 to 110 are written and row 111 waits for the next MCU row.
//
// A smaller image (divisor 2, 4 or 8). The inverse DCT runs as usual. Then each box of samples is
// replaced by its mean. At 1/2 of a 4:2:0 image, boxes of Y are 2x2 and those of chroma 1x1: chroma
// keeps its resolution and needs no upsampling.
//
// Gray output of a color JPEG decodes only Y. The blocks of Cb and Cr are skipped.
//
// Measured: decoding, cropping and augmenting 500x375 photos to 224x224 runs at 1,808 images/s on
// one thread. libjpeg-turbo's decoding alone of the same photos runs at 997 images/s
// (`./run bench-input`).
#include "io/image/jpeg/baseline.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "io/image/jpeg/mcu_reader.h"
#include "io/image/jpeg/plane.h"
#include "src/core/divide_up.h"
#include "src/core/simd.h"

namespace carole::io::jpeg {
namespace {

// MCUs [first, end) in one direction.
struct Range {
  int first = 0;
  int end = 0;

  int count() const { return end - first; }
};

// Returns the MCUs that contain the pixels [begin, begin + count) of `size` pixels. An MCU has
// `mcu_size` pixels in this direction. Upsampling also reads one neighbor on each side.
Range McusFor(int begin, int count, int size, int mcu_size, bool upsampled) {
  const int margin = upsampled ? 1 : 0;
  return {std::max(begin - margin, 0) / mcu_size,
          (std::min(begin + count + margin, size) - 1) / mcu_size + 1};
}

}  // namespace

class BaselineDecoder::Impl {
 public:
  Impl()
      : kernels_(PickSimd(simd_v2::MakePixelKernels, simd_v3::MakePixelKernels,
                          simd_v4::MakePixelKernels)()) {}

  bool Decode(const BaselineScan& scan, const Request& request, uint8_t* out) {
    const Region& region = region_ = request.region;
    channels_ = request.channels;
    divisor_ = request.divisor;
    num_planes_ = channels_ == 1 ? 1 : scan.num_components;
    halved_columns_ = num_planes_ > 1 && divisor_ == 1 && scan.horizontal == 2;
    halved_rows_ = num_planes_ > 1 && divisor_ == 1 && scan.vertical == 2;
    const int mcu_width = scan.horizontal * 8 / divisor_;
    const int mcu_height = scan.vertical * 8 / divisor_;
    columns_ = McusFor(region.left, region.width, DivideUp(scan.width, divisor_), mcu_width,
                       halved_columns_);
    const Range rows = McusFor(region.top, region.height, DivideUp(scan.height, divisor_),
                               mcu_height, halved_rows_);
    if (!Open(scan)) return false;
    const int mcus_per_row = DivideUp(scan.width, scan.horizontal * 8);
    if (!mcu_reader_.Skip(int64_t{rows.first} * mcus_per_row + columns_.first)) return false;
    next_row_ = region.top;
    for (int row = rows.first; row < rows.end; ++row) {
      if (!DecodeMcuRow(row)) return false;
      const bool is_last = row + 1 == rows.end;
      if (!is_last && !mcu_reader_.Skip(mcus_per_row - columns_.count())) return false;
      // With halved rows, the last row of pixels waits for the chroma row below it.
      const int complete = (row + 1) * mcu_height - (halved_rows_ ? 1 : 0);
      WriteRows(is_last ? region.top + region.height : complete, out);
    }
    return true;
  }

 private:
  struct Tables {
    DcTable dc;
    AcTable ac;
  };

  // Prepares tables, planes and the MCU reader. Returns false if the Huffman codes are invalid.
  bool Open(const BaselineScan& scan) {
    Mcu mcu;
    for (int c = 0; c < scan.num_components; ++c) {
      const Tables* tables = MakeTables(scan, c);
      if (tables == nullptr) return false;
      const bool is_luma = c == 0;
      const int h = is_luma ? 1 : scan.horizontal, v = is_luma ? 1 : scan.vertical;
      const Plane::Shape shape{.width = DivideUp(scan.width, std::max(divisor_, h)),
                               .height = DivideUp(scan.height, std::max(divisor_, v)),
                               .box_width = std::max(divisor_ / h, 1),
                               .box_height = std::max(divisor_ / v, 1),
                               .mcu_block_columns = is_luma ? scan.horizontal : 1,
                               .mcu_block_rows = is_luma ? scan.vertical : 1,
                               .first_mcu = columns_.first,
                               .num_mcus = columns_.count()};
      if (c < num_planes_) planes_[c].Open(shape, scan.components[c].quantizers);
      for (int row = 0; row < shape.mcu_block_rows; ++row) {
        for (int column = 0; column < shape.mcu_block_columns; ++column) {
          McuBlock& block = mcu.blocks[mcu.num_blocks++];
          if (c < num_planes_) block = planes_[c].BlockAt(row, column);
          block.dc_table = &tables->dc;
          block.ac_table = &tables->ac;
          block.component = c;
        }
      }
    }
    mcu_reader_.Open(scan.bytes, scan.restart_interval, mcu);
    return true;
  }

  // Returns the tables of component `c`, or nullptr if its codes are invalid. Cr usually has the
  // codes of Cb; then they share the tables.
  const Tables* MakeTables(const BaselineScan& scan, int c) {
    const BaselineComponent& component = scan.components[c];
    if (c == 2 && component.dc == scan.components[1].dc && component.ac == scan.components[1].ac)
      return &tables_[1];
    Tables& tables = tables_[c];
    const bool made = MakeDcTable(component.dc, tables.dc) && MakeAcTable(component.ac, tables.ac);
    return made ? &tables : nullptr;
  }

  // Decodes the wanted MCUs of an MCU row to samples. Returns false if the stream is not valid.
  bool DecodeMcuRow(int row) {
    for (int mcu = 0; mcu < columns_.count(); mcu += Plane::kChunkMcus) {
      const int count = std::min(Plane::kChunkMcus, columns_.count() - mcu);
      if (!mcu_reader_.Decode(count)) return false;
      for (int c = 0; c < num_planes_; ++c) planes_[c].Transform(kernels_, row, mcu, count);
    }
    for (int c = 1; c < num_planes_ && halved_columns_; ++c) planes_[c].ExtendSideways(row);
    return true;
  }

  // Writes the region's rows of pixels from next_row_ up to row `end` (exclusive).
  void WriteRows(int end, uint8_t* out) {
    end = std::min(end, region_.top + region_.height);
    const ptrdiff_t row_bytes = ptrdiff_t{region_.width} * channels_;
    for (; next_row_ < end; ++next_row_)
      WriteRow(next_row_, out + (next_row_ - region_.top) * row_bytes);
  }

  void WriteRow(int y, uint8_t* out) {
    const uint8_t* luma = planes_[0].Row(y) + region_.left;
    if (channels_ == 1) {
      std::memcpy(out, luma, region_.width);
    } else if (num_planes_ == 1) {
      kernels_.gray_to_rgb(luma, region_.width, out);
    } else {
      kernels_.to_rgb(luma, ChromaRow(1, y), ChromaRow(2, y), region_.width, out);
    }
  }

  // Returns the samples of component `c` for row y of pixels, one per pixel, from the region's
  // first column on.
  const uint8_t* ChromaRow(int c, int y) {
    const Plane& plane = planes_[c];
    if (!halved_columns_) return plane.Row(y) + region_.left;
    const int first = region_.left / 2;
    const int count = (region_.left + region_.width - 1) / 2 - first + 1;
    std::vector<uint8_t>& row = chroma_rows_[c - 1];
    row.resize(size_t{2} * count + kRowMargin);
    if (halved_rows_) {
      kernels_.upsample_both(plane.Row(y / 2) + first,
                             plane.Row(y / 2 + (y % 2 == 0 ? -1 : 1)) + first, count, row.data());
    } else {
      kernels_.upsample_columns(plane.Row(y) + first, count, row.data());
    }
    return row.data() + region_.left % 2;
  }

  PixelKernels kernels_;
  Region region_;
  int channels_ = 3;
  int divisor_ = 1;
  int num_planes_ = 3;
  bool halved_columns_ = false;
  bool halved_rows_ = false;
  Range columns_;
  int next_row_ = 0;
  std::array<Tables, 3> tables_;
  std::array<Plane, 3> planes_;
  McuReader mcu_reader_;
  std::array<std::vector<uint8_t>, 2> chroma_rows_;
};

BaselineDecoder::BaselineDecoder() : impl_(std::make_unique<Impl>()) {}
BaselineDecoder::~BaselineDecoder() = default;
bool BaselineDecoder::Decode(const BaselineScan& scan, const Request& request, uint8_t* out) {
  return impl_->Decode(scan, request, out);
}

}  // namespace carole::io::jpeg
