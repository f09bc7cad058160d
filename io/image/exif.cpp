// EXIF data are a TIFF file in a segment of the image file (CIPA DC-008). Offsets count from its
// beginning. The orientation is an entry of the first directory:
//
//   "II*\0" or "MM\0*"   the byte order
//   uint32               offset of the first directory
//   uint16               the number of entries there, each of 12 bytes:
//                        uint16 tag, uint16 type, uint32 count, value
#include "io/image/exif.h"

#include <algorithm>
#include <cstdint>

namespace carole::io {
namespace {

constexpr int kUpright = 1;

uint64_t LoadNumber(std::string_view bytes, bool big_endian) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const size_t from_top = big_endian ? i : bytes.size() - 1 - i;
    number = number << 8 | static_cast<uint8_t>(bytes[from_top]);
  }
  return number;
}

int OrientationOfTiff(std::string_view tiff) {
  constexpr uint64_t kOrientationTag = 0x112;
  constexpr size_t kEntryBytes = 12;
  const bool big_endian = tiff.starts_with("MM");
  if (tiff.size() < 8 || (!big_endian && !tiff.starts_with("II"))) return kUpright;
  const auto number = [&](size_t offset, size_t size) {
    return LoadNumber(tiff.substr(offset, size), big_endian);
  };
  const uint64_t directory = number(4, 4);
  if (directory + 2 > tiff.size()) return kUpright;
  const uint64_t count = number(directory, 2);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > tiff.size()) return kUpright;
    if (number(entry, 2) != kOrientationTag) continue;
    const uint64_t orientation = number(entry + 8, 2);
    return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : kUpright;
  }
  return kUpright;
}

// Returns the EXIF data of a JPEG; empty if there are none. They are in a segment APP1 before the
// first scan.
std::string_view ExifOfJpeg(std::string_view bytes) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  constexpr int kApp1 = 0xe1, kStartOfScan = 0xda, kFill = 0xff;
  // Segments have the form FF MARKER LENGTH(2) ...; the length includes its own two bytes.
  for (size_t i = 2; i + 4 <= bytes.size() && bytes[i] == '\xff';) {
    const int marker = static_cast<uint8_t>(bytes[i + 1]);
    if (marker == kFill) {
      ++i;
      continue;
    }
    const size_t length = LoadNumber(bytes.substr(i + 2, 2), true);
    if (marker == kStartOfScan || length < 2) return {};
    const std::string_view segment = bytes.substr(i + 4, length - 2);
    if (marker == kApp1 && segment.starts_with(kExif)) return segment.substr(kExif.size());
    i += 2 + length;
  }
  return {};
}

// Returns the EXIF data of a PNG; empty if there are none.
std::string_view ExifOfPng(std::string_view bytes) {
  constexpr size_t kSignatureBytes = 8, kFramingBytes = 12;  // length, type and checksum of a chunk
  for (size_t i = kSignatureBytes; i + kFramingBytes <= bytes.size();) {
    const uint64_t length = LoadNumber(bytes.substr(i, 4), true);
    if (bytes.substr(i + 4, 4) == "eXIf") return bytes.substr(i + 8, length);
    i += kFramingBytes + length;
  }
  return {};
}

}  // namespace

int ExifOrientation(std::string_view bytes) {
  if (IsJpeg(bytes)) return OrientationOfTiff(ExifOfJpeg(bytes));
  if (IsPng(bytes)) return OrientationOfTiff(ExifOfPng(bytes));
  return kUpright;
}

Image TurnUpright(const ImageView& image, int orientation) {
  // How the stored rows and columns have to be changed, by orientation.
  const bool swap_axes = orientation >= 5;  // first of all
  const bool flip_rows =
      orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  const bool flip_columns =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  Image turned;
  AllocateImage("turned image", swap_axes ? image.width : image.height,
                swap_axes ? image.height : image.width, image.channels, &turned);
  uint8_t* out = turned.pixels.data();
  for (int y = 0; y < turned.height; ++y) {
    for (int x = 0; x < turned.width; ++x, out += image.channels) {
      const int row = flip_rows ? turned.height - 1 - y : y;
      const int column = flip_columns ? turned.width - 1 - x : x;
      const int64_t from =
          swap_axes ? int64_t{column} * image.width + row : int64_t{row} * image.width + column;
      std::copy_n(image.pixels + from * image.channels, image.channels, out);
    }
  }
  return turned;
}

}  // namespace carole::io
