// The places of objects in a record's picture, as TF-Slim's ImageNet records have them.
#pragma once

#include <string_view>
#include <vector>

#include "io/image/box.h"

namespace carole::io {

// Of a serialized Example, by the lists image/object/bbox/{xmin,xmax,ymin,ymax}; none where it has
// none. Throws DataError, with the list's key, when the lists differ in length or a box is not
// inside the picture.
std::vector<Box> ReadBoxes(std::string_view example);

}  // namespace carole::io
