// A decoder for the most common JPEGs: baseline, gray or YCbCr, with chroma at full resolution
// (4:4:4), half the columns (4:2:2), or half the columns and rows (4:2:0). It is about twice as
// fast as libjpeg-turbo and gives the same bits: libjpeg's fast integer DCT, triangular upsampling
// and color conversion.
//
// It decodes only intact streams. At anything that an encoder would not write it gives up, and the
// caller uses libjpeg, which then decides between pixels and an error. The essay in baseline.cpp
// shows how the files of this folder work together.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "io/image/jpeg/huffman.h"
#include "io/image/jpeg/region.h"

namespace carole::io::jpeg {

// The content of the headers before the image's single scan.
struct BaselineComponent {
  std::array<uint16_t, 64> quantizers{};  // in natural (row-major) order
  HuffmanCode dc;
  HuffmanCode ac;
};
struct BaselineScan {
  int height = 0;
  int width = 0;
  int num_components = 0;    // 1: gray; 3: Y, Cb, Cr
  int horizontal = 1;        // columns of Y per column of chroma: 1 or 2
  int vertical = 1;          // rows of Y per row of chroma: 1, or 2 if horizontal is 2
  int restart_interval = 0;  // in minimum coded units; 0: no restart markers
  std::array<BaselineComponent, 3> components;
  std::string_view bytes;  // the entropy-coded data after the headers
};

// Decodes image after image for one thread. It keeps its tables and its memory (a few rows of
// samples, and the bytes of a scan) from image to image.
class BaselineDecoder {
 public:
  // The pixels to decode: a region of the image at 1/divisor of its size, with sides rounded up. A
  // pixel of the smaller image is made of the means of the samples in its area.
  struct Request {
    Region region;     // in the smaller image; must lie within it
    int divisor = 1;   // 1, 2, 4 or 8
    int channels = 3;  // 1 or 3
  };

  BaselineDecoder();
  ~BaselineDecoder();

  // Writes region.height rows of region.width * channels bytes to `out`. Returns false if it gave
  // up; then the content of `out` is undefined.
  bool Decode(const BaselineScan& scan, const Request& wanted, uint8_t* out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace carole::io::jpeg
