#include "io/records/raw_pixels.h"

#include <fmt/format.h>

#include "src/core/error.h"

namespace carole::io {

StoredImage ReadStoredImage(std::span<const FeatureQuery> found) {
  const auto encoded = SingleBytes(found[0]);
  if (!encoded) {
    throw DataError(
        fmt::format("key missing: got no {}; is this a record of images?", found[0].key));
  }
  return {
      .encoded = *encoded, .format = SingleBytes(found[1]), .height = found[2], .width = found[3]};
}

std::optional<ImageView> FindRawPixels(const StoredImage& stored, const RawPixelFormat& format,
                                       int channels) {
  const std::string_view encoded = stored.encoded;
  const int64_t default_size = format.image_size;
  if (!stored.format) {
    const bool are_pixels =
        format.without_format && !IsJpeg(encoded) && !IsPng(encoded) &&
        static_cast<int64_t>(encoded.size()) == default_size * default_size * channels;
    if (!are_pixels) return std::nullopt;
  } else if (*stored.format != "raw" && *stored.format != "RAW") {
    return std::nullopt;
  }
  const int64_t height = SingleInt64(stored.height).value_or(default_size);
  const int64_t width = SingleInt64(stored.width).value_or(default_size);
  CheckImageSize("raw", height, width);
  if (static_cast<int64_t>(encoded.size()) != height * width * channels) {
    throw DataError(fmt::format("raw image of wrong size: got {} bytes, want {}x{}x{}",
                                encoded.size(), height, width, channels));
  }
  return ImageView{.pixels = reinterpret_cast<const uint8_t*>(encoded.data()),
                   .height = static_cast<int>(height),
                   .width = static_cast<int>(width),
                   .channels = channels};
}

}  // namespace carole::io
