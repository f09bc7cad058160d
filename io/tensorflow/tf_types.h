// TensorFlow's element types.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace carole::io {

// TensorFlow's numbers of element types.
enum class TfType : int32_t {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kHalf = 19,
  kUint32 = 22,
  kUint64 = 23
};

// "float32"; "type 77" for one that is not known.
std::string NameOf(TfType type);
// Bytes of an element; 0 for strings and types that are not known.
size_t SizeOf(TfType type);
// Little-endian elements of any type that has a size.
void ConvertToFloats(TfType type, std::string_view bytes, std::span<float> out);
// One element, cut off to an integer.
int64_t ConvertToInteger(TfType type, std::string_view bytes);

}  // namespace carole::io
