// JPEG, decoded only where pixels are wanted: sound baseline images by io/jpeg, all others by
// libjpeg-turbo, which reads all headers and decides what is an error. Where it is asked for, a GPU
// decodes the baseline color images that it can.
#pragma once

#include <memory>
#include <string_view>

#include "io/image/image.h"
#include "io/image/image_decoder.h"

namespace carole::io {

struct JpegOptions {
  int channels = 3;  // 1 or 3
  DctMethod dct_method = DctMethod::kIntegerFast;
  bool only_libjpeg = false;  // otherwise io/jpeg decodes what it can, to the same pixels
  // Of the coded data, too, to its end, by libjpeg; otherwise such an image is decoded to what it
  // became, as TensorFlow does (but where it has markers within).
  bool refuses_damage = false;
  // Decodes what it can; must outlive the decoder. Null: the CPU decodes everything.
  const ImageDecoderFactory* decoder_factory = nullptr;
  bool scaling = false;  // LazyImage: Decode() may be asked for less than the whole size
};

// A decoder that is used again and again by its thread: its buffers cost more than decoding a small
// image. Memory is bounded whatever a file claims; so is the number of scans.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();

  // Reads the header. `bytes` must outlive the calls of Decode(). Throws DataError for damage, for
  // images without an end, and for those larger than 2^26 pixels.
  void Open(std::string_view bytes, const JpegOptions& options);

  int height() const;
  int width() const;

  // Decodes the window of the open image, which must lie within it, into `image`: the same pixels
  // as that part of the whole picture. Rows below it are not even read, columns beside it are not
  // transformed. Afterwards the image is no longer open. Throws DataError.
  // divisor 2, 4 or 8: of the image at 1/divisor of its size, sides rounded up, whose pixels are
  // about the means of divisor * divisor; libjpeg and io/jpeg then differ by a few levels.
  void Decode(const Region& window, Image* image, int divisor = 1);

  // Whether the last Decode() was libjpeg's.
  bool by_libjpeg() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Channels that the first frame header names (1, 3, 4: CMYK or YCCK); 0 when there is none.
int JpegChannels(std::string_view bytes);

}  // namespace carole::io
