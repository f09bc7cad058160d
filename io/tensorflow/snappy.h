// Decompresses Snappy's raw format (github.com/google/snappy, format_description.txt). Tables that
// other programs wrote may be compressed with it.
#pragma once

#include <string>
#include <string_view>

namespace carole::io {

// Throws DataError if the bytes are damaged, or if they claim a size that Snappy cannot reach.
std::string UncompressSnappy(std::string_view compressed);

}  // namespace carole::io
