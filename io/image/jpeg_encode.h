// JPEGs from pixels.
#pragma once

#include <string>

#include "io/image/image.h"

namespace carole::io {

// A baseline JPEG of a gray or RGB image, chroma halved both ways as TensorFlow's encode_jpeg has
// it. quality 1..100.
std::string EncodeJpeg(const ImageView& image, int quality);

}  // namespace carole::io
