// JPEG through libjpeg-turbo. libjpeg reports errors by longjmp: each function below that calls
// setjmp holds no object with a destructor, and memory is owned by its caller.
#include <fmt/format.h>

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs FILE and size_t.
#include <jerror.h>
#include <jpeglib.h>

#include "io/image.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// One decompressor, used again and again by its thread: setting it up costs more than decoding a
// small image.
class JpegDecoder {
 public:
  JpegDecoder() {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr jpeg) { Jump(jpeg); };
    errors_.emit_message = [](j_common_ptr jpeg, int level) {
      // Other warnings (stray bytes between markers) leave a usable image; a missing end does not.
      if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF) Jump(jpeg);
    };
    jpeg_.client_data = this;
    jpeg_create_decompress(&jpeg_);
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg_); }

  void Decode(std::string_view bytes, int channels, Image* image) {
    if (!ReadHeader(bytes)) Fail();
    const bool cmyk = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    if (cmyk && channels == 1) {
      jpeg_abort_decompress(&jpeg_);
      throw DataError("[io.image] jpeg: cannot be decoded to grey: got CMYK, want grey or colour");
    }
    jpeg_.out_color_space = cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_.dct_method = JDCT_IFAST;
    jpeg_.do_fancy_upsampling = TRUE;
    try {
      ResizeImage("jpeg", jpeg_.image_height, jpeg_.image_width, channels, image);
    } catch (...) {
      jpeg_abort_decompress(&jpeg_);
      throw;
    }
    if (cmyk) cmyk_row_.resize(size_t{jpeg_.image_width} * 4);
    if (!ReadRows(image->pixels.data(), size_t{jpeg_.image_width} * channels, cmyk)) Fail();
  }

 private:
  static void Jump(j_common_ptr jpeg) {
    auto* self = static_cast<JpegDecoder*>(jpeg->client_data);
    jpeg->err->format_message(jpeg, self->message_);
    longjmp(self->jump_, 1);
  }

  bool ReadHeader(std::string_view bytes) {
    if (setjmp(jump_) != 0) return false;
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&jpeg_, TRUE);
    return true;
  }

  bool ReadRows(uint8_t* pixels, size_t row_bytes, bool cmyk) {
    if (setjmp(jump_) != 0) return false;
    jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      uint8_t* out = pixels + jpeg_.output_scanline * row_bytes;
      JSAMPROW row = cmyk ? cmyk_row_.data() : out;
      jpeg_read_scanlines(&jpeg_, &row, 1);
      if (cmyk) CmykToRgb(out);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  void CmykToRgb(uint8_t* out) const {
    const int invert = jpeg_.saw_Adobe_marker ? 0 : 255;  // Adobe stores 255 - ink
    const uint8_t* in = cmyk_row_.data();
    for (JDIMENSION x = 0; x < jpeg_.output_width; ++x, in += 4, out += 3) {
      for (int c = 0; c < 3; ++c) {
        out[c] = static_cast<uint8_t>((in[c] ^ invert) * (in[3] ^ invert) / 255);
      }
    }
  }

  [[noreturn]] void Fail() {
    jpeg_abort_decompress(&jpeg_);
    throw DataError(fmt::format("[io.image] jpeg: cannot be decoded: {}", message_));
  }

  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jmp_buf jump_;
  char message_[JMSG_LENGTH_MAX] = {};
  std::vector<uint8_t> cmyk_row_;
};

}  // namespace

void DecodeJpeg(std::string_view bytes, int channels, Image* image) {
  thread_local JpegDecoder decoder;
  decoder.Decode(bytes, channels, image);
}

}  // namespace carole::io
