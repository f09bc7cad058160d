// Decodes images by their content: JPEG (as TensorFlow does) and PNG, to grey or RGB bytes; encodes
// PNG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// Larger images are refused before memory is allocated for them.
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

// Decodes to `channels` (1 or 3) channels, whatever the file has: grey is replicated, colour
// becomes luminance, an alpha channel is dropped, 16 bits become 8. Throws DataError ("[io.image]
// jpeg: …") for damage, an unknown format or an image that is too large; `image` then holds no
// picture.
void DecodeImage(std::string_view bytes, int channels, Image* image);

bool IsJpeg(std::string_view bytes);
bool IsPng(std::string_view bytes);

// JPEG as TensorFlow's decode_jpeg at its defaults, bit by bit: fast integer DCT, triangular
// upsampling of chroma, CMYK by C*K/255 for Adobe's inverted inks. CMYK to one channel is refused,
// as there.
void DecodeJpeg(std::string_view bytes, int channels, Image* image);
void DecodePng(std::string_view bytes, int channels, Image* image);

// A PNG of 1 or 3 channels of 8 bits, without loss.
std::string EncodePng(const ImageView& image);

// Makes room for an image of this size; throws DataError when that is more than kMaxImagePixels.
void ResizeImage(std::string_view format, int64_t height, int64_t width, int channels,
                 Image* image);

}  // namespace carole::io
