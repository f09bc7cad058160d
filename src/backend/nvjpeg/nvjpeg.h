// JPEG decoding on a GPU, with NVIDIA's nvJPEG and the CUDA driver. Both libraries are loaded at
// run time, when a decoder is first wanted.
//
// nvJPEG's inverse DCT rounds unlike libjpeg's, so pixels differ by a few levels. With nvJPEG
// before 12.1 they differ more at the edges of colors, because that version repeats chroma instead
// of interpolating it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/image/image_decoder.h"

namespace carole::gpu_jpeg {

// File names of the libraries. The first name in `nvjpeg` that can be loaded is used.
struct NvJpegLibraries {
  std::vector<std::string> nvjpeg = {"libnvjpeg.so.13", "libnvjpeg.so.12"};
  std::string driver = "libcuda.so.1";
};

// Makes decoders that use nvJPEG on one GPU. Thread-safe. Must outlive its decoders, each of which
// is used by one thread.
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
