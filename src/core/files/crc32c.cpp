#include "src/core/files/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace carole {

uint32_t Crc32c(std::string_view bytes) {
  constexpr size_t kMaxPiece = size_t{1} << 30;  // ISA-L takes the length as an int
  uint32_t state = ~0u;  // ISA-L leaves the inversions before and after to the caller
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), kMaxPiece);
    auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(piece), state);
    bytes.remove_prefix(piece);
  }
  return ~state;
}

}  // namespace carole
