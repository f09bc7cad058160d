// Converts image files to Examples with the features that TF-Slim's tools write.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/image/box.h"

namespace carole::io {

inline constexpr uint64_t kMaxImageFileBytes = uint64_t{1} << 28;

// An image file that can be decoded.
struct CheckedImage {
  std::string bytes;  // of the file
  int height = 0;
  int width = 0;
  int orientation = 1;  // in the EXIF data of the original file (exif.h)
};

// Which images are converted, in addition to CMYK JPEGs.
struct ImageConversion {
  bool only_jpeg = false;               // PNGs
  bool apply_exif_orientation = false;  // images that are not upright
};

// Checks that a JPEG or PNG file can be decoded. If it has to be converted, it becomes an RGB JPEG
// of quality 100, or a PNG if it was one and `only_jpeg` is false; all others stay unchanged. A
// JPEG with damaged coded data that TensorFlow would accept is accepted with a warning. Throws
// DataError, which begins with `location` ("FILE: MEMBER"), if the image cannot be decoded.
CheckedImage CheckImage(std::string bytes, const ImageConversion& conversion,
                        const std::string& location);

// Features of an ImageNet record, in addition to the image.
struct ImagenetFields {
  int64_t label = 0;  // 1..1000
  std::string_view synset;
  std::string_view text;
  std::string_view filename;
  std::span<const Box> boxes;
};
// Returns an Example in the form of TF-Slim's ImageNet tool.
std::string ImagenetExample(const CheckedImage& image, const ImagenetFields& fields);

// Returns an Example in the form of TF-Slim's flowers, which all folders of photos use.
// image/format is "jpg" or "png".
std::string PhotoExample(const CheckedImage& image, int64_t label);

}  // namespace carole::io
