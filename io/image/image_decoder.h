// The interface for JPEG decoders that do not run on the CPU, such as src/backend/nvjpeg.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "io/image/jpeg/region.h"

namespace carole::io {

// Decodes image after image for one thread.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;

  // Decodes a region of a color JPEG, whose whole size is (height, width), to `out`, an array of
  // (region.height, region.width, 3) bytes. Returns false if the CPU must decode this JPEG: its
  // format is not supported, its data are damaged, or memory is short. Throws DeviceError if the
  // device fails.
  virtual bool Decode(std::string_view bytes, int height, int width, const Region& region,
                      uint8_t* out) = 0;
};

// Makes decoders for the threads of a process.
class ImageDecoderFactory {
 public:
  virtual ~ImageDecoderFactory() = default;

  // Makes a decoder. Call it on the thread that will use the decoder. The factory must outlive the
  // decoder. Throws DeviceError.
  virtual std::unique_ptr<ImageDecoder> MakeDecoder() const = 0;
};

}  // namespace carole::io
