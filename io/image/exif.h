// The orientation that cameras store in photos. Decoders of TensorFlow ignore it, and so does
// training: a photo with an orientation is seen as the sensor recorded it.
#pragma once

#include <string_view>

#include "io/image/image.h"

namespace carole::io {

// Returns the orientation in the EXIF data of a JPEG or PNG file: 1 (upright) to 8. Returns 1 if
// there is none, or if the data are damaged.
int ExifOrientation(std::string_view bytes);

// Returns the image as EXIF's orientation (1 to 8) wants it to be shown.
Image TurnUpright(const ImageView& image, int orientation);

}  // namespace carole::io
