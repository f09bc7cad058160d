// An image whose size is known and whose pixels are decoded when, and only where, they are wanted.
#pragma once

#include <chrono>
#include <string_view>

#include "io/image/image.h"
#include "io/image/jpeg.h"

namespace carole::io {

// One for each thread, opened for image after image: it keeps its memory and its decoder.
class LazyImage {
 public:
  LazyImage() = default;
  explicit LazyImage(const ImageView& pixels) { Open(pixels); }

  // Reads the header of a JPEG, or the whole of a PNG. `bytes` must outlive Decode(). Throws
  // DataError as DecodeImage().
  void Open(std::string_view bytes, const JpegOptions& options);
  // Pixels that are decoded already; they must outlive Decode().
  void Open(const ImageView& pixels);

  int height() const { return height_; }
  int width() const { return width_; }
  int channels() const { return channels_; }

  // What Decode() may divide the size by when the image is to become so many times smaller: 2, 4 or
  // 8 in JPEGs that were opened for scaling, else 1.
  int DivisorFor(float times_smaller) const;

  // The pixels of a window, which must lie within the image, at 1/divisor of its size (jpeg.h);
  // valid until the next call of a function of this object. At most once after an Open(). Throws
  // DataError.
  ImageView Decode(const Region& window, int divisor = 1);
  ImageView DecodeAll() { return Decode({.height = height_, .width = width_}); }

  // Spent in Open() and Decode() since the first.
  std::chrono::nanoseconds decode_time() const { return decode_time_; }

 private:
  bool jpeg_ = false;
  bool scaling_ = false;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
  ImageView pixels_;  // of the whole image unless jpeg_
  Image whole_;
  Image window_;
  JpegDecoder decoder_;
  std::chrono::nanoseconds decode_time_{0};
};

}  // namespace carole::io
