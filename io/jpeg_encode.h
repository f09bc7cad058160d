// JPEGs from pixels, and what a JPEG's header says.
#pragma once

#include <string>
#include <string_view>

#include "io/image.h"

namespace carole::io {

// A baseline JPEG of a grey or RGB image, chroma halved both ways as TensorFlow's encode_jpeg has
// it. quality 1..100.
std::string EncodeJpeg(const ImageView& image, int quality);

// Channels that the first frame header names (1, 3, 4: CMYK or YCCK); 0 when there is none.
int JpegChannels(std::string_view bytes);

}  // namespace carole::io
