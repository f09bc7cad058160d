// Makes JPEGs of every kind with libjpeg.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
// jpeglib.h needs FILE and size_t.
#include <jpeglib.h>

#include "src/core/rng.h"

namespace carole::io {

struct Encoding {
  J_COLOR_SPACE in = JCS_RGB;      // color space of the pixels
  J_COLOR_SPACE file = JCS_YCbCr;  // color space in the file
  int components = 3;
  int horizontal = 2;  // columns of luma per column of chroma
  int vertical = 2;    // rows of luma per row of chroma
  int quality = 85;
  int restart_rows = 0;
  bool progressive = false;
  bool optimized = false;  // Huffman codes are made for this image
  int restart_units = 0;
  double period = 0;  // the image is waves of this period in pixels; 0: coarse noise
};

inline uint8_t WaveAt(int y, int x, int channel, double period) {
  constexpr double kTurn = 6.283185307179586;
  return static_cast<uint8_t>(std::lround(
      128 + 90 * std::sin(kTurn * (x / period + channel / 3.0)) * std::cos(kTurn * y / period)));
}

// Returns a JPEG of waves, or of coarse noise, whose edges reveal every mistake of a decoder.
inline std::string Encode(int height, int width, const Encoding& encoding) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);  // exits on an error; all inputs are valid
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &bytes, &size);
  jpeg.image_height = height;
  jpeg.image_width = width;
  jpeg.input_components = encoding.components;
  jpeg.in_color_space = encoding.in;
  jpeg_set_defaults(&jpeg);
  jpeg_set_colorspace(&jpeg, encoding.file);
  jpeg_set_quality(&jpeg, encoding.quality, TRUE);
  jpeg.restart_in_rows = encoding.restart_rows;
  jpeg.restart_interval = encoding.restart_units;
  jpeg.optimize_coding = encoding.optimized ? TRUE : FALSE;
  if (encoding.components == 3) {
    jpeg.comp_info[0].h_samp_factor = encoding.horizontal;
    jpeg.comp_info[0].v_samp_factor = encoding.vertical;
  }
  if (encoding.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  std::vector<uint8_t> row(static_cast<size_t>(width) * encoding.components);
  for (int y = 0; y < height; ++y) {
    for (size_t i = 0; i < row.size(); ++i) {
      const auto x = i / encoding.components, channel = i % encoding.components;
      row[i] = encoding.period > 0
                   ? WaveAt(y, static_cast<int>(x), static_cast<int>(channel), encoding.period)
                   : static_cast<uint8_t>(SplitMix64(x / 3 * 7919 + y / 2 * 104729 + i % 3));
    }
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&jpeg, &pointer, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string file(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&jpeg);
  std::free(bytes);
  return file;
}

}  // namespace carole::io
