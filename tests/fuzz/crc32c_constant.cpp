// In place of src/core/files/crc32c.cpp: every checksum is the same, so that mutated bytes get past
// the checks and into the parsers behind them.
#include "src/core/files/crc32c.h"

namespace carole {

uint32_t Crc32c(std::string_view) { return 0; }

}  // namespace carole
