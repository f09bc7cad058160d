#include "io/image/jpeg_encode.h"

#include <fmt/format.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
// jpeglib.h needs FILE and size_t.
#include <jpeglib.h>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// The state of one call of libjpeg's encoder.
struct Encoder {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = {};
  unsigned char* bytes = nullptr;  // allocated with malloc by libjpeg
  unsigned long size = 0;

  Encoder() {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr common) {
      auto* self = static_cast<Encoder*>(common->client_data);
      common->err->format_message(common, self->message);
      longjmp(self->jump, 1);
    };
    jpeg_create_compress(&jpeg);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder() {
    jpeg_destroy_compress(&jpeg);
    std::free(bytes);
  }

  // Returns false after an error; `message` then holds its text. libjpeg reports errors with
  // longjmp, so this function has no local object with a destructor.
  bool Run(const ImageView& image, int quality) {
    if (setjmp(jump) != 0) return false;
    jpeg_mem_dest(&jpeg, &bytes, &size);
    jpeg.image_width = static_cast<JDIMENSION>(image.width);
    jpeg.image_height = static_cast<JDIMENSION>(image.height);
    jpeg.input_components = image.channels;
    jpeg.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, quality, TRUE);
    jpeg.density_unit = 1;  // dots per inch, TensorFlow's default
    jpeg.X_density = jpeg.Y_density = 300;
    jpeg_start_compress(&jpeg, TRUE);
    const size_t row_bytes = static_cast<size_t>(image.width) * image.channels;
    while (jpeg.next_scanline < jpeg.image_height) {
      auto* row = const_cast<JSAMPROW>(image.pixels + jpeg.next_scanline * row_bytes);
      jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    return true;
  }
};

}  // namespace

std::string EncodeJpeg(const ImageView& image, int quality) {
  CAROLE_CHECK(image.channels == 1 || image.channels == 3, "a JPEG of {} channels", image.channels);
  Encoder encoder;
  if (!encoder.Run(image, quality)) {
    throw DataError(fmt::format("[io.image] jpeg: cannot encode {}x{} pixels: {}", image.width,
                                image.height, encoder.message));
  }
  return {reinterpret_cast<const char*>(encoder.bytes), encoder.size};
}

}  // namespace carole::io
