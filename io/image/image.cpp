#include "io/image/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/text/byte_order_mark.h"
#include "src/core/text/escape.h"
#include "src/core/text/lower_case.h"

namespace carole::io {
namespace {

constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

// The beginning of a file that is not an image which can be decoded.
struct KnownFormat {
  size_t offset;           // of the magic bytes
  std::string_view magic;  // letters in lower case match both cases
  std::string_view name;
  std::string_view advice;
};

constexpr std::string_view kConvert = "convert it";
constexpr std::string_view kDownload = "download the image again";
constexpr KnownFormat kKnownFormats[] = {
    {0, "GIF8", "a GIF", kConvert},
    {0, "BM", "a BMP", kConvert},
    {0, "II*", "a TIFF", kConvert},
    {0, "MM", "a TIFF", kConvert},
    {8, "WEBP", "a WebP", kConvert},
    {4, "ftypavi", "an AVIF image", kConvert},
    {4, "ftyphei", "a HEIC image", kConvert},
    {4, "ftyphev", "a HEIC image", kConvert},
    {4, "ftypmif1", "a HEIC image", kConvert},
    {4, "ftypmsf1", "a HEIC image", kConvert},
    {4, "ftyp", "a video", "remove it"},
    {0, "8BPS", "a Photoshop file", kConvert},
    {0, {"\0\x05\x16\x07", 4}, "attributes of a file on macOS", "remove it"},
    {0, "\xff\x0a", "a JPEG XL image", kConvert},
    {4, "JXL ", "a JPEG XL image", kConvert},
    {4, "jP  ", "a JPEG 2000 image", kConvert},
    {0, "%PDF", "a PDF", kConvert},
    {0, "PK\x03\x04", "a zip archive", "unpack it"},
    {0, "\x1f\x8b", "gzip data", "unpack it"},
    {0, "version https://git-lfs", "a Git LFS pointer", "fetch the image: git lfs pull"},
    {0, "<!doctype html", "an HTML page", kDownload},
    {0, "<html", "an HTML page", kDownload},
    {0, "<head", "an HTML page", kDownload},
    {0, "<svg", "an SVG drawing", kConvert},
    {0, "<?xml", "an XML file", kDownload},
    {0, "{", "a JSON file", kDownload},
};

// Whether the bytes begin with this format. Case and blanks before it do not matter in text.
bool IsFormat(std::string_view bytes, const KnownFormat& format) {
  constexpr std::string_view kTextStarts = "<{";
  if (kTextStarts.find(format.magic[0]) != std::string_view::npos) {
    bytes = WithoutByteOrderMark(bytes);
    bytes.remove_prefix(std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size()));
  }
  if (bytes.size() < format.offset + format.magic.size()) return false;
  return std::ranges::equal(bytes.substr(format.offset, format.magic.size()), format.magic,
                            [](unsigned char c, char wanted) {
                              return c == static_cast<unsigned char>(wanted) ||
                                     std::tolower(c) == wanted;
                            });
}

// True for words in ASCII, such as an error message of a server.
bool IsText(std::string_view bytes) {
  constexpr size_t kMaxLooked = 512;
  const auto is_text = [](unsigned char c) {
    return c < 0x80 && (std::isprint(c) != 0 || std::isspace(c) != 0);
  };
  return bytes.find(' ') != bytes.npos && std::ranges::all_of(bytes.substr(0, kMaxLooked), is_text);
}

// Throws the error for bytes that are neither JPEG nor PNG; names the format if it is a common one.
[[noreturn]] void FailUnknownFormat(std::string_view bytes) {
  constexpr std::string_view kWant = "want a JPEG or a PNG";
  if (bytes.empty())
    throw DataError(fmt::format("[io.image] image: empty file: got 0 bytes, {}; {}", kWant,
                                "copy the image again"));
  for (const KnownFormat& known : kKnownFormats) {
    if (IsFormat(bytes, known))
      throw DataError(fmt::format("[io.image] image: wrong format: got {}, {}; {}", known.name,
                                  kWant, known.advice));
  }
  if (bytes.find_first_not_of('\0') == std::string_view::npos)
    throw DataError(
        fmt::format("[io.image] image: only zeros: got {} bytes of zeros, {}; copy "
                    "the image again",
                    bytes.size(), kWant));
  if (IsText(bytes))
    throw DataError(fmt::format("[io.image] image: wrong format: got the text '{}', {}; {}",
                                Escape(bytes.substr(0, 40)), kWant, kDownload));
  std::string head;
  for (unsigned char c : bytes.substr(0, 8)) head += fmt::format("{:02x}", c);
  throw DataError(
      fmt::format("[io.image] image: unknown format: got {} bytes that begin with 0x{}, {}",
                  bytes.size(), head, kWant));
}

}  // namespace

bool IsJpeg(std::string_view bytes) { return bytes.starts_with("\xff\xd8\xff"); }
bool IsPng(std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1a\n"); }

bool HasImageName(const std::filesystem::path& path) {
  const std::string extension = LowerCase(path.extension().string());
  return !path.filename().string().starts_with('.') &&
         std::ranges::find(kImageExtensions, extension) != std::end(kImageExtensions);
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
