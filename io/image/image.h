// Decodes images by their content: JPEG (as TensorFlow does) and PNG, to gray or RGB bytes; encodes
// PNG.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/image/jpeg/region.h"

namespace carole::io {

// A view of (height, width, channels) bytes, row-major.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int height = 0;
  int width = 0;
  int channels = 0;
};

// Owns its pixels. Decoding into the same Image again reuses its memory.
struct Image {
  std::vector<uint8_t> pixels;
  int height = 0;
  int width = 0;
  int channels = 0;

  ImageView view() const { return {pixels.data(), height, width, channels}; }
};

// How libjpeg computes the inverse DCT. Results differ by up to 5 levels (11 in small images of
// high quality).
enum class DctMethod {
  kIntegerFast,     // TensorFlow's default
  kIntegerAccurate  // libjpeg's, and that of most other programs
};

// Decodes to `channels` (1 or 3) channels, whatever the file has: gray is replicated, color
// becomes luminance, an alpha channel is dropped, 16 bits become 8. Throws DataError ("[io.image]
// jpeg: …") for damage, an unknown format or an image that is too large; `image` then holds no
// picture. refuses_damage: of what a JPEG codes, too, which is otherwise decoded to what it became.
void DecodeImage(std::string_view bytes, int channels, Image* image, bool refuses_damage = false);

// Whether the name ends as those of JPEG and PNG do and is no hidden one ("._a.jpg", which macOS
// leaves).
bool HasImageName(const std::filesystem::path& path);

bool IsJpeg(std::string_view bytes);
bool IsPng(std::string_view bytes);

// JPEG as TensorFlow's decode_jpeg, bit by bit: triangular upsampling of chroma, CMYK by C*K/255
// for Adobe's inverted inks. CMYK to one channel is refused, as there.
void DecodeJpeg(std::string_view bytes, int channels, Image* image,
                DctMethod dct_method = DctMethod::kIntegerFast, bool refuses_damage = false);
void DecodePng(std::string_view bytes, int channels, Image* image);

// A PNG of 1 or 3 channels of 8 bits, without loss.
std::string EncodePng(const ImageView& image);

// Throws DataError unless 0 < height * width <= 2^26: before memory is allocated.
void CheckImageSize(std::string_view format, int64_t height, int64_t width);
// Makes room for an image of this size, checked as above.
void AllocateImage(std::string_view format, int64_t height, int64_t width, int channels,
                   Image* image);

}  // namespace carole::io
