// Pictures as records, with the fields that TF-Slim's tools write.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/image/box.h"

namespace carole::io {

inline constexpr uint64_t kMaxPictureBytes = uint64_t{1} << 28;  // of a picture's file

// A picture that was decoded once.
struct CheckedImage {
  std::string bytes;
  int height = 0;
  int width = 0;
};

// Decodes the picture, which must be a good JPEG or PNG. A CMYK JPEG, and with `only_jpeg` a PNG,
// becomes an RGB JPEG of quality 100; all others stay byte for byte. `place` ("FILE: MEMBER")
// starts the text of the DataError.
CheckedImage CheckImage(std::string bytes, bool only_jpeg, const std::string& place);

// ImageNet's form.
struct ImagenetFields {
  int64_t label = 0;  // 1..1000
  std::string_view synset;
  std::string_view text;
  std::string_view filename;
  std::span<const Box> boxes;
};
std::string ImagenetExample(const CheckedImage& image, const ImagenetFields& fields);

// The form of flowers and other folders of pictures; the format's tag is "jpg" or "png".
std::string PhotoExample(const CheckedImage& image, int64_t label);

}  // namespace carole::io
