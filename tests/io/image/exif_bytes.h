// Adds EXIF data to image files.
#pragma once

#include "tests/io/damage.h"

namespace carole::io {

// Returns the JPEG or PNG with EXIF data of this orientation. A JPEG gets the byte order of Intel,
// a PNG that of Motorola.
inline std::string WithOrientation(const std::string& file, int orientation) {
  if (IsPng(file)) {
    const std::string tiff = FromHex("4d4d002a 00000008 0001 0112 0003 00000001") +
                             FromHex(fmt::format("00{:02x}0000 00000000", orientation));
    constexpr size_t kHeaderBytes = 33;  // the signature and the chunk IHDR
    return file.substr(0, kHeaderBytes) + FromHex(fmt::format("{:08x}", tiff.size())) + "eXIf" +
           tiff + "sum?" + file.substr(kHeaderBytes);
  }
  const std::string exif = FromHex("457869660000 49492a00 08000000 0100 1201 0300 01000000") +
                           FromHex(fmt::format("{:02x}000000 00000000", orientation));
  return file.substr(0, 2) + FromHex(fmt::format("ffe1{:04x}", exif.size() + 2)) + exif +
         file.substr(2);
}

}  // namespace carole::io
