// TensorFlow's element types.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace carole::io {

// TensorFlow's DataType, with the same numbers.
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

// The name, such as "float32"; "type 77" for an unknown type.
std::string NameOf(TfType type);
// Bytes per element; 0 for strings and unknown types.
size_t SizeOf(TfType type);
// Converts little-endian elements of a type that has a size. `bytes` holds out.size() elements.
void ConvertToFloats(TfType type, std::string_view bytes, std::span<float> out);
// Converts one element of an integer type or of kBool. Throws DataError for other types.
int64_t ConvertToInteger(TfType type, std::string_view bytes);

}  // namespace carole::io
