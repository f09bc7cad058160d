// JPEG decoding, restricted to the region that is wanted.
//
// libjpeg-turbo reads all headers and decides what is an error. Intact baseline images are decoded
// by io/image/jpeg, which gives the same bits and is faster; all other images by libjpeg-turbo.
#pragma once

#include <memory>
#include <string_view>

#include "io/image/image.h"

namespace carole::io {

struct JpegOptions {
  int channels = 3;  // 1 or 3
  DctMethod dct_method = DctMethod::kIntegerFast;
  bool only_libjpeg = false;  // false: io/image/jpeg decodes what it can, to the same pixels
  // Whether damaged coded data is an error. If true, libjpeg decodes, and reads the data to its
  // end. If false, such an image is decoded to the pixels that the damage leads to, as in
  // TensorFlow (except if there are markers within the data).
  bool reject_damage = false;
  bool scaling = false;  // whether LazyImage may decode at 1/2, 1/4 or 1/8 of the size
};

// Decodes image after image for one thread. Reuse it: allocating its buffers costs more than
// decoding a small image. Memory and the number of scans are limited, whatever a file claims.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();

  // Opens an image and reads its header. `bytes` must outlive Decode(). Throws DataError if the
  // header is damaged, the image has no end marker, or it has more than 2^26 pixels.
  void Open(std::string_view bytes, const JpegOptions& options);

  int height() const;
  int width() const;

  // Decodes a region of the open image, which must lie within it, to `image`. The pixels equal
  // those of the same region in a full decode. Rows below the region are not read, and columns
  // outside of it are not transformed. Afterwards the image is closed. Throws DataError.
  //
  // With divisor 2, 4 or 8, the region belongs to the image at 1/divisor of its size, with sides
  // rounded up. A pixel is approximately the mean of divisor * divisor pixels. libjpeg and
  // io/image/jpeg then differ by a few levels.
  void Decode(const Region& region, Image* image, int divisor = 1);

  // Whether libjpeg did the last Decode().
  bool used_libjpeg() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the number of channels in the first frame header: 1, 3, or 4 (CMYK or YCCK). Returns 0 if
// there is no frame header.
int JpegChannels(std::string_view bytes);

}  // namespace carole::io
