// JPEGs decoded by a GPU, with NVIDIA's nvJPEG and the GPU's driver, which are looked for when they
// are asked for. Its inverse DCT rounds otherwise than libjpeg's: pixels differ by a few levels,
// and more at the edges of colours where nvJPEG is older than 12.1, which repeats chroma.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/image.h"

namespace carole::io::jpeg {

struct NvJpegLibraries {
  std::vector<std::string> nvjpeg = {"libnvjpeg.so.13", "libnvjpeg.so.12"};  // the first that loads
  std::string driver = "libcuda.so.1";
};

// The library on one GPU, for all threads.
class NvJpeg {
 public:
  // `gpu` is taken modulo the GPUs that CUDA_VISIBLE_DEVICES lets through. Throws ConfigError where
  // a library or the GPU is missing, or too old.
  explicit NvJpeg(int gpu, const NvJpegLibraries& libraries = {});
  ~NvJpeg();
  NvJpeg(const NvJpeg&) = delete;
  NvJpeg& operator=(const NvJpeg&) = delete;

 private:
  friend class NvJpegDecoder;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// What one thread decodes with.
class NvJpegDecoder {
 public:
  // On the thread that will use it. `library` must outlive this. Throws DeviceError.
  explicit NvJpegDecoder(const NvJpeg& library);
  ~NvJpegDecoder();
  NvJpegDecoder(const NvJpegDecoder&) = delete;
  NvJpegDecoder& operator=(const NvJpegDecoder&) = delete;

  // Writes the window of a colour JPEG of this size to `out` (window.height, window.width, 3).
  // False where the library does not take this JPEG, or finds it damaged, or memory is short.
  // Throws DeviceError where the driver says that the GPU fails.
  bool Decode(std::string_view bytes, int height, int width, const Window& window, uint8_t* out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace carole::io::jpeg
