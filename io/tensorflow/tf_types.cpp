#include "io/tensorflow/tf_types.h"

#include <fmt/format.h>

#include "src/core/error.h"
#include "src/core/files/bytes.h"

namespace carole::io {
namespace {

// IEEE half precision: 5 exponent bits (all 1 for infinity and NaN) and 10 fraction bits.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t widened = exponent == 31 ? 255 : exponent + 112;
  const uint32_t bits = sign | widened << 23 | fraction << 13;
  return LoadLittleEndian<float>(reinterpret_cast<const char*>(&bits));
}

float Bfloat16ToFloat(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  return LoadLittleEndian<float>(reinterpret_cast<const char*>(&bits));
}

template <typename T>
void Convert(std::string_view bytes, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(LoadLittleEndian<T>(bytes.data() + i * sizeof(T)));
}

void ConvertHalves(std::string_view bytes, std::span<float> out, float (*convert)(uint16_t)) {
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = convert(LoadLittleEndian<uint16_t>(&bytes[2 * i]));
}

}  // namespace

std::string NameOf(TfType type) {
  switch (type) {
    case TfType::kFloat:
      return "float32";
    case TfType::kDouble:
      return "float64";
    case TfType::kInt32:
      return "int32";
    case TfType::kUint8:
      return "uint8";
    case TfType::kInt16:
      return "int16";
    case TfType::kInt8:
      return "int8";
    case TfType::kString:
      return "string";
    case TfType::kInt64:
      return "int64";
    case TfType::kBool:
      return "bool";
    case TfType::kBfloat16:
      return "bfloat16";
    case TfType::kUint16:
      return "uint16";
    case TfType::kHalf:
      return "float16";
    case TfType::kUint32:
      return "uint32";
    case TfType::kUint64:
      return "uint64";
  }
  return fmt::format("type {}", static_cast<int32_t>(type));
}

size_t SizeOf(TfType type) {
  switch (type) {
    case TfType::kUint8:
    case TfType::kInt8:
    case TfType::kBool:
      return 1;
    case TfType::kInt16:
    case TfType::kUint16:
    case TfType::kHalf:
    case TfType::kBfloat16:
      return 2;
    case TfType::kFloat:
    case TfType::kInt32:
    case TfType::kUint32:
      return 4;
    case TfType::kDouble:
    case TfType::kInt64:
    case TfType::kUint64:
      return 8;
    case TfType::kString:
      return 0;
  }
  return 0;
}

void ConvertToFloats(TfType type, std::string_view bytes, std::span<float> out) {
  switch (type) {
    case TfType::kFloat:
      return Convert<float>(bytes, out);
    case TfType::kDouble:
      return Convert<double>(bytes, out);
    case TfType::kHalf:
      return ConvertHalves(bytes, out, HalfToFloat);
    case TfType::kBfloat16:
      return ConvertHalves(bytes, out, Bfloat16ToFloat);
    default:
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<float>(ConvertToInteger(type, bytes.substr(i * SizeOf(type))));
  }
}

int64_t ConvertToInteger(TfType type, std::string_view bytes) {
  switch (type) {
    case TfType::kUint8:
    case TfType::kBool:
      return LoadLittleEndian<uint8_t>(bytes.data());
    case TfType::kInt8:
      return LoadLittleEndian<int8_t>(bytes.data());
    case TfType::kInt16:
      return LoadLittleEndian<int16_t>(bytes.data());
    case TfType::kUint16:
      return LoadLittleEndian<uint16_t>(bytes.data());
    case TfType::kInt32:
      return LoadLittleEndian<int32_t>(bytes.data());
    case TfType::kUint32:
      return LoadLittleEndian<uint32_t>(bytes.data());
    case TfType::kInt64:
    case TfType::kUint64:
      return LoadLittleEndian<int64_t>(bytes.data());
    default:
      throw DataError(fmt::format("[io.tf] element type: got {}, want an integer", NameOf(type)));
  }
}

}  // namespace carole::io
