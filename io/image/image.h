// Images in memory, and decoding of JPEG and PNG to gray or RGB bytes. JPEGs decode to the same
// bytes as in TensorFlow. Also encodes PNG.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/image/jpeg/region.h"

namespace carole::io {

// A view of decoded pixels: (height, width, channels) bytes, row-major.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int height = 0;
  int width = 0;
  int channels = 0;
};

// An image that owns its pixels, in the same layout. Decoding into the same Image again reuses its
// memory.
struct Image {
  std::vector<uint8_t> pixels;
  int height = 0;
  int width = 0;
  int channels = 0;

  ImageView view() const { return {pixels.data(), height, width, channels}; }
};

// The algorithm of the inverse DCT. Pixels differ by up to 5 levels (by 11 in small images of high
// quality).
enum class DctMethod {
  kIntegerFast,     // TensorFlow's default
  kIntegerAccurate  // the default of libjpeg and of most other programs
};

// Decodes a JPEG or PNG; the content of `bytes` tells the format. `image` gets `channels` (1 or 3)
// channels, whatever the file has: gray is replicated, color becomes luminance, an alpha channel is
// dropped, and 16 bits become 8.
//
// A JPEG with damaged coded data is decoded to the pixels that the damage leads to, as in
// TensorFlow, unless `reject_damage`. Throws DataError ("[io.image] jpeg: ...") if the image is
// damaged otherwise, has an unknown format, or is too large. After an error the content of `image`
// is undefined.
void DecodeImage(std::string_view bytes, int channels, Image* image, bool reject_damage = false);

// The extensions of JPEG and PNG.
inline constexpr std::string_view kImageExtensions[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png"};

// Whether the file name has one of these extensions (case does not matter) and is not hidden. macOS
// leaves hidden files such as "._a.jpg" in archives.
bool HasImageName(const std::filesystem::path& path);

// Whether the bytes begin with the format's magic number.
bool IsJpeg(std::string_view bytes);
bool IsPng(std::string_view bytes);

// Decodes a JPEG bit for bit as TensorFlow's decode_jpeg: with triangular upsampling of chroma.
// CMYK is converted by C*K/255, for the inverted inks of Adobe's programs. As in TensorFlow, CMYK
// cannot be converted to one channel (DataError). Other errors as in DecodeImage().
void DecodeJpeg(std::string_view bytes, int channels, Image* image,
                DctMethod dct_method = DctMethod::kIntegerFast, bool reject_damage = false);
// Decodes a PNG. Throws DataError as DecodeImage().
void DecodePng(std::string_view bytes, int channels, Image* image);

// Returns the image as a PNG file with 1 or 3 channels of 8 bits, without loss.
std::string EncodePng(const ImageView& image);

// Throws DataError unless 0 < height * width <= 2^26. Call it before memory is allocated. `format`
// is used in the message.
void CheckImageSize(std::string_view format, int64_t height, int64_t width);
// Sets the size of `image` and allocates its pixels, after CheckImageSize().
void AllocateImage(std::string_view format, int64_t height, int64_t width, int channels,
                   Image* image);

}  // namespace carole::io
