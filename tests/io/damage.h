// Helpers for tests of file formats: bytes to damage, and records to read.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/image/image.h"
#include "io/records/example.h"
#include "io/records/tfrecord.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace carole::io {

// The bytes of a file, with functions that damage them.
struct DamagedBytes {
  std::string bytes;

  void SetByte(size_t offset, char value) { bytes.at(offset) = value; }
  void FlipBit(size_t offset, int bit = 0) {
    bytes.at(offset) = static_cast<char>(bytes.at(offset) ^ (1 << bit));
  }
  void ShrinkSize(size_t count) { bytes.resize(bytes.size() - count); }
  MemorySource Open(const std::string& name = "train-00012") const { return {name, bytes}; }
};

// The bytes of hexadecimal digits; spaces between bytes are ignored.
inline std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    while (hex[i] == ' ') ++i;
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

inline std::string ToHex(std::string_view bytes) {
  std::string hex;
  for (unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return hex;
}

// The bytes of a TFRecord file with these records.
inline std::string Records(const std::vector<std::string>& records) {
  std::string bytes;
  MemorySink sink(&bytes);
  TfRecordWriter writer(sink);
  for (const std::string& record : records) writer.Write(record);
  return bytes;
}

// A serialized Example with the image as PNG.
inline std::string PngExample(const ImageView& image, int64_t label) {
  ExampleBuilder example;
  example.Add("image/encoded", EncodePng(image));
  example.Add("image/format", "png");
  example.Add("image/class/label", label);
  return example.Finish();
}

// A serialized Example with a gray PNG. Its pixels depend on `number`, and pixel 0 is that number.
inline std::string GrayExample(int number, int64_t label, int side = 28) {
  std::vector<uint8_t> pixels(static_cast<size_t>(side) * side);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<uint8_t>(number * 7 + i * 3 + i / 28);
  pixels[0] = static_cast<uint8_t>(number);
  return PngExample({pixels.data(), side, side, 1}, label);
}

}  // namespace carole::io
