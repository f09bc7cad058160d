// JPEG encoding.
#pragma once

#include <string>

#include "io/image/image.h"

namespace carole::io {

// Returns a gray or RGB image as a baseline JPEG file. As in TensorFlow's encode_jpeg, chroma has
// half the columns and rows (4:2:0). `quality` is 1 to 100. Throws DataError if libjpeg cannot
// encode the image.
std::string EncodeJpeg(const ImageView& image, int quality);

}  // namespace carole::io
