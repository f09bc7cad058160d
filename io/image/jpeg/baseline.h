// A decoder for the JPEGs that nearly all are: baseline, gray or YCbCr with chroma whole, halved
// sideways or halved both ways. About twice as fast as libjpeg-turbo, and the same to the bit: its
// fast integer DCT, its triangular upsampling, its colors.
//
// Sound streams only. At the first thing that an encoder would not write it gives up, and what is
// to become of the image is libjpeg's decision.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "io/image/jpeg/huffman.h"
#include "io/image/jpeg/region.h"

namespace carole::io::jpeg {

// What the headers up to the only scan say.
struct BaselineComponent {
  std::array<uint16_t, 64> quantizers{};  // in natural order
  HuffmanCode dc;
  HuffmanCode ac;
};
struct BaselineScan {
  int height = 0;
  int width = 0;
  int num_components = 0;    // 1: gray; 3: Y, Cb, Cr
  int horizontal = 1;        // so many columns of Y for one of chroma: 1 or 2
  int vertical = 1;          // so many rows: 1, or 2 when columns are halved
  int restart_interval = 0;  // in minimum coded units; 0: none
  std::array<BaselineComponent, 3> components;
  std::string_view bytes;  // behind the headers
};

// Keeps its tables and its memory (a few rows of samples, and the bytes of a scan) from image to
// image. For one thread.
class BaselineDecoder {
 public:
  // Pixels of the image at 1/divisor (1, 2, 4 or 8) of its size, sides rounded up. They are made of
  // the means of the samples that lie in them.
  struct Wanted {
    Region window;  // must lie within that image
    int divisor = 1;
    int channels = 3;  // 1 or 3
  };

  BaselineDecoder();
  ~BaselineDecoder();

  // Writes window.height rows of window.width * channels bytes. False when it gave up; `out` then
  // holds no picture.
  bool Decode(const BaselineScan& scan, const Wanted& wanted, uint8_t* out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace carole::io::jpeg
