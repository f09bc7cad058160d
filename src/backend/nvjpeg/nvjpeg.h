// JPEGs decoded by a GPU, with NVIDIA's nvJPEG and the GPU's driver, which are looked for when they
// are asked for. Its inverse DCT rounds otherwise than libjpeg's: pixels differ by a few levels,
// and more at the edges of colors where nvJPEG is older than 12.1, which repeats chroma.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/image/image_decoder.h"

namespace carole::gpu_jpeg {

struct NvJpegLibraries {
  std::vector<std::string> nvjpeg = {"libnvjpeg.so.13", "libnvjpeg.so.12"};  // the first that loads
  std::string driver = "libcuda.so.1";
};

// The library on one GPU. All threads may use it.
class NvJpeg : public io::ImageDecoderFactory {
 public:
  // Uses GPU number `gpu`, modulo the number of GPUs that CUDA_VISIBLE_DEVICES shows. Throws
  // ConfigError if a library or the GPU is missing or too old.
  explicit NvJpeg(int gpu, const NvJpegLibraries& libraries = {});
  ~NvJpeg() override;
  NvJpeg(const NvJpeg&) = delete;
  NvJpeg& operator=(const NvJpeg&) = delete;

  std::unique_ptr<io::ImageDecoder> MakeDecoder() const override;

 private:
  class Decoder;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace carole::gpu_jpeg
