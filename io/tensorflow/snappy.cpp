#include "io/tensorflow/snappy.h"

#include <cstdint>

#include "src/core/error.h"

namespace carole::io {
namespace {

// The largest expansion: a copy element of 3 bytes produces 64 bytes.
constexpr uint64_t kMaxRatio = 22;

[[noreturn]] void Refuse(const char* what) {
  throw DataError(std::string("[io.snappy] compressed block: ") + what);
}

// The compressed bytes that are not yet consumed.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  std::string_view Take(uint64_t n) {
    if (n > bytes_.size()) Refuse("is truncated");
    const std::string_view taken = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }
  // Little-endian.
  uint64_t TakeNumber(int num_bytes) {
    uint64_t value = 0;
    int shift = 0;
    for (char c : Take(static_cast<uint64_t>(num_bytes))) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(c)) << shift;
      shift += 8;
    }
    return value;
  }
  uint64_t TakeVarint32() {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      const uint64_t byte = TakeNumber(1);
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
    Refuse("has a malformed length");
  }

 private:
  std::string_view bytes_;
};

// Appends `length` bytes that begin `offset` bytes before the end. The source may overlap the
// appended bytes: then a short pattern repeats.
void AppendCopy(std::string& out, uint64_t offset, uint64_t length) {
  if (offset == 0 || offset > out.size()) Refuse("copies from before its beginning");
  for (uint64_t i = 0; i < length; ++i) out.push_back(out[out.size() - offset]);
}

}  // namespace

std::string UncompressSnappy(std::string_view compressed) {
  Input in(compressed);
  const uint64_t size = in.TakeVarint32();
  if (size > compressed.size() * kMaxRatio) Refuse("declares a length that it cannot reach");
  std::string out;
  out.reserve(size);
  while (!in.empty()) {
    const uint64_t tag = in.TakeNumber(1);
    const uint64_t upper = tag >> 2;
    uint64_t length = upper + 1;
    switch (tag & 3) {
      case 0:
        if (upper >= 60) length = in.TakeNumber(static_cast<int>(upper - 59)) + 1;
        if (length > size - out.size()) Refuse("exceeds its declared length");
        out += in.Take(length);
        continue;
      case 1: {
        length = (upper & 7) + 4;
        if (length > size - out.size()) Refuse("exceeds its declared length");
        AppendCopy(out, (upper >> 3 << 8) | in.TakeNumber(1), length);
        continue;
      }
      default:
        if (length > size - out.size()) Refuse("exceeds its declared length");
        AppendCopy(out, in.TakeNumber((tag & 3) == 2 ? 2 : 4), length);
    }
  }
  if (out.size() != size) Refuse("is shorter than its declared length");
  return out;
}

}  // namespace carole::io
