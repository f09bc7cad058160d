// In place of io/crc32c.cpp: every checksum is the same, so that mutated bytes get past the checks
// and into the parsers behind them.
#include "io/crc32c.h"

namespace carole::io {

uint32_t Crc32c(std::string_view) { return 0; }

}  // namespace carole::io
