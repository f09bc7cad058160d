// The interface to decoders of JPEGs that do not run on the CPU (src/backend/nvjpeg).
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

  // Decodes `window` of a color JPEG of this height and width to `out`, an array of (window.height,
  // window.width, 3) bytes. Returns false if the CPU must decode this JPEG: because its format is
  // not supported, its data are damaged, or memory is short. Throws DeviceError if the device
  // fails.
  virtual bool Decode(std::string_view bytes, int height, int width, const Region& window,
                      uint8_t* out) = 0;
};

// Makes decoders for all threads of a process.
class ImageDecoderFactory {
 public:
  virtual ~ImageDecoderFactory() = default;

  // Call it on the thread that will use the decoder. The factory must outlive the decoder. Throws
  // DeviceError.
  virtual std::unique_ptr<ImageDecoder> MakeDecoder() const = 0;
};

}  // namespace carole::io
