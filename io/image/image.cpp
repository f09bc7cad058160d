#include "io/image/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

// Throws the error for bytes that are neither JPEG nor PNG; names the format if it is a common one.
[[noreturn]] void FailUnknownFormat(std::string_view bytes) {
  struct Known {
    std::string_view name;
    std::string_view magic;
  };
  constexpr Known kKnown[] = {
      {"a GIF", "GIF8"}, {"a BMP", "BM"}, {"a TIFF", "II*"}, {"a TIFF", "MM"}, {"a WebP", "RIFF"}};
  std::string what = "an unknown format";
  for (const Known& known : kKnown) {
    if (bytes.starts_with(known.magic)) what = known.name;
  }
  std::string head;
  for (unsigned char c : bytes.substr(0, 8)) head += fmt::format("{:02x}", c);
  throw DataError(
      fmt::format("[io.image] image: unknown format: got {} bytes that begin with 0x{} ({}), "
                  "want a JPEG or a PNG",
                  bytes.size(), head, what));
}

}  // namespace

bool IsJpeg(std::string_view bytes) { return bytes.starts_with("\xff\xd8\xff"); }
bool IsPng(std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1a\n"); }

bool HasImageName(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return !path.filename().string().starts_with('.') &&
         (extension == ".jpg" || extension == ".jpeg" || extension == ".png");
}

void DecodeImage(std::string_view bytes, int channels, Image* image, bool reject_damage) {
  CAROLE_CHECK(channels == 1 || channels == 3, "images have 1 or 3 channels, not {}", channels);
  if (IsPng(bytes)) return DecodePng(bytes, channels, image);
  if (IsJpeg(bytes))
    return DecodeJpeg(bytes, channels, image, DctMethod::kIntegerFast, reject_damage);
  FailUnknownFormat(bytes);
}

void CheckImageSize(std::string_view format, int64_t height, int64_t width) {
  if (height > 0 && width > 0 && height <= kMaxImagePixels / width) return;
  throw DataError(fmt::format("[io.image] {}: size out of range: got {}x{}, want at most {} pixels",
                              format, height, width, kMaxImagePixels));
}

void AllocateImage(std::string_view format, int64_t height, int64_t width, int channels,
                   Image* image) {
  CheckImageSize(format, height, width);
  image->pixels.resize(static_cast<size_t>(height * width) * channels);
  image->height = static_cast<int>(height);
  image->width = static_cast<int>(width);
  image->channels = channels;
}

}  // namespace carole::io
