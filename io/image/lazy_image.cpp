#include "io/image/lazy_image.h"

#include <algorithm>

#include "src/core/check.h"

namespace carole::io {
namespace {

// Adds the duration of its lifetime to a sum.
class TimeAdder {
 public:
  explicit TimeAdder(std::chrono::nanoseconds& sum) : sum_(sum) {}
  TimeAdder(const TimeAdder&) = delete;
  TimeAdder& operator=(const TimeAdder&) = delete;
  ~TimeAdder() { sum_ += std::chrono::steady_clock::now() - start_; }

 private:
  std::chrono::nanoseconds& sum_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

void LazyImage::Open(std::string_view bytes, const JpegOptions& options) {
  CAROLE_CHECK(options.channels == 1 || options.channels == 3,
               "images have 1 or 3 channels, not {}", options.channels);
  const TimeAdder adder(decode_time_);
  is_jpeg_ = IsJpeg(bytes);
  scaling_ = options.scaling;
  if (is_jpeg_) {
    decoder_.Open(bytes, options);
    height_ = decoder_.height();
    width_ = decoder_.width();
    channels_ = options.channels;
  } else {
    DecodeImage(bytes, options.channels, &whole_);
    Open(whole_.view());
  }
}

void LazyImage::Open(const ImageView& pixels) {
  is_jpeg_ = false;
  pixels_ = pixels;
  height_ = pixels.height;
  width_ = pixels.width;
  channels_ = pixels.channels;
}

int LazyImage::DivisorFor(float shrink_factor) const {
  int divisor = 1;
  while (is_jpeg_ && scaling_ && divisor < 8 && static_cast<float>(2 * divisor) <= shrink_factor)
    divisor *= 2;
  return divisor;
}

ImageView LazyImage::Decode(const Region& region, int divisor) {
  const TimeAdder adder(decode_time_);
  if (is_jpeg_) {
    decoder_.Decode(region, &region_, divisor);
    return region_.view();
  }
  CAROLE_CHECK(divisor == 1 && region.top >= 0 && region.left >= 0 &&
                   region.top + region.height <= height_ && region.left + region.width <= width_,
               "region of {}x{} at ({}, {}) in an image of {}x{}", region.height, region.width,
               region.top, region.left, height_, width_);
  if (region.width == width_ && region.height == height_) return pixels_;
  AllocateImage("region", region.height, region.width, channels_, &region_);
  const size_t row_bytes = static_cast<size_t>(region.width) * channels_;
  for (int y = 0; y < region.height; ++y) {
    const int64_t from = (int64_t{region.top + y} * width_ + region.left) * channels_;
    std::copy_n(pixels_.pixels + from, row_bytes, region_.pixels.data() + y * row_bytes);
  }
  return region_.view();
}

}  // namespace carole::io
