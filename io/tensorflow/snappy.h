// Snappy's raw format (github.com/google/snappy, format_description.txt), reading only: tables that
// other programs wrote may be compressed with it.
#pragma once

#include <string>
#include <string_view>

namespace carole::io {

// Throws DataError when the bytes are damaged or claim to grow by more than Snappy can.
std::string UncompressSnappy(std::string_view compressed);

}  // namespace carole::io
