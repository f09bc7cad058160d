// Bounding boxes of the objects in a record's image, in the form of TF-Slim's ImageNet records.
#pragma once

#include <string_view>
#include <vector>

#include "io/image/box.h"

namespace carole::io {

// Reads the boxes of a serialized Example from its lists image/object/bbox/{xmin,xmax,ymin,ymax}.
// Returns no boxes if the lists are missing. Throws DataError, with the list's key, if the lists
// differ in length or if a box is not inside the image.
std::vector<Box> ReadBoxes(std::string_view example);

}  // namespace carole::io
