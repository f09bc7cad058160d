// An image whose size is known, and whose pixels are decoded on demand: only the region that the
// caller asks for.
#pragma once

#include <chrono>
#include <string_view>

#include "io/image/image.h"
#include "io/image/jpeg.h"

namespace carole::io {

// A thread opens one LazyImage for image after image, because it keeps its memory and its decoder.
class LazyImage {
 public:
  LazyImage() = default;
  explicit LazyImage(const ImageView& pixels) { Open(pixels); }

  // Opens an image file: reads the header of a JPEG, or decodes all of a PNG. `bytes` must outlive
  // Decode(). Throws DataError as DecodeImage().
  void Open(std::string_view bytes, const JpegOptions& options);
  // Opens pixels that are already decoded; they must outlive Decode() and its result.
  void Open(const ImageView& pixels);

  int height() const { return height_; }
  int width() const { return width_; }
  int channels() const { return channels_; }

  // Returns the largest divisor for Decode() if the caller will shrink the image by this factor. It
  // is at most `shrink_factor`: 1, 2, 4 or 8 for a JPEG that was opened with options.scaling,
  // else 1.
  int DivisorFor(float shrink_factor) const;

  // Decodes a region of the image at 1/divisor of its size (see JpegDecoder::Decode); the region
  // must lie within that image. The result is valid until the next call of a function of this
  // object. Call it at most once after Open(). Throws DataError.
  ImageView Decode(const Region& region, int divisor = 1);
  ImageView DecodeAll() { return Decode({.height = height_, .width = width_}); }

  // Time spent in all calls of Open() and Decode().
  std::chrono::nanoseconds decode_time() const { return decode_time_; }

 private:
  bool is_jpeg_ = false;
  bool scaling_ = false;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
  ImageView pixels_;  // the whole image, unless is_jpeg_
  Image whole_;       // a decoded PNG
  Image region_;      // the result of Decode()
  JpegDecoder decoder_;
  std::chrono::nanoseconds decode_time_{0};
};

}  // namespace carole::io
