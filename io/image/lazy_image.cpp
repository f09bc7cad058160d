#include "io/image/lazy_image.h"

#include <algorithm>

#include "src/core/check.h"

namespace carole::io {
namespace {

// Adds the time of its life to a sum.
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
  jpeg_ = IsJpeg(bytes);
  scaling_ = options.scaling;
  if (jpeg_) {
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
  jpeg_ = false;
  pixels_ = pixels;
  height_ = pixels.height;
  width_ = pixels.width;
  channels_ = pixels.channels;
}

int LazyImage::DivisorFor(float times_smaller) const {
  int divisor = 1;
  while (jpeg_ && scaling_ && divisor < 8 && static_cast<float>(2 * divisor) <= times_smaller)
    divisor *= 2;
  return divisor;
}

ImageView LazyImage::Decode(const Region& window, int divisor) {
  const TimeAdder adder(decode_time_);
  if (jpeg_) {
    decoder_.Decode(window, &window_, divisor);
    return window_.view();
  }
  CAROLE_CHECK(divisor == 1 && window.top >= 0 && window.left >= 0 &&
                   window.top + window.height <= height_ && window.left + window.width <= width_,
               "a window of {}x{} at ({}, {}) of {}x{}", window.height, window.width, window.top,
               window.left, height_, width_);
  if (window.width == width_ && window.height == height_) return pixels_;
  AllocateImage("window", window.height, window.width, channels_, &window_);
  const size_t row_bytes = static_cast<size_t>(window.width) * channels_;
  for (int y = 0; y < window.height; ++y) {
    const int64_t from = (int64_t{window.top + y} * width_ + window.left) * channels_;
    std::copy_n(pixels_.pixels + from, row_bytes, window_.pixels.data() + y * row_bytes);
  }
  return window_.view();
}

}  // namespace carole::io
