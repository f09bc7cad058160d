// PNG decoding and encoding with libpng. libpng reports errors with longjmp. So each function below
// that calls setjmp has no local object with a destructor, and its caller owns the memory.
#include <fmt/format.h>
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "io/image/image.h"
#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// State that libpng's callbacks share with the code that calls libpng.
struct PngState {
  jmp_buf jump;
  char message[128] = {};
  std::string_view unread;         // reading: the rest of the file
  std::string* written = nullptr;  // writing: receives the file
};

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::strncpy(state->message, message, sizeof(state->message) - 1);
  longjmp(state->jump, 1);
}

void OnWarning(png_structp, png_const_charp) {}  // only about ancillary chunks

void OnRead(png_structp png, png_bytep out, size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (state->unread.size() < count) png_error(png, "truncated file");
  std::memcpy(out, state->unread.data(), count);
  state->unread.remove_prefix(count);
}

class PngReader {
 public:
  explicit PngReader(std::string_view bytes) {
    state_.unread = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state_, OnError, OnWarning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    CAROLE_CHECK(info_ != nullptr, "png_create_read_struct failed");
    png_set_read_fn(png_, &state_, OnRead);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  void Decode(int channels, Image* image) {
    if (!ReadHeader(channels)) Fail();
    const int64_t height = png_get_image_height(png_, info_);
    AllocateImage("png", height, png_get_image_width(png_, info_), channels, image);
    const size_t row_bytes = static_cast<size_t>(image->width) * channels;
    CAROLE_CHECK_EQ(png_get_rowbytes(png_, info_), row_bytes, "bytes in a row of a PNG");
    thread_local std::vector<png_bytep> rows;
    rows.resize(static_cast<size_t>(height));
    for (int64_t y = 0; y < height; ++y) rows[y] = image->pixels.data() + y * row_bytes;
    if (!ReadRows(rows.data())) Fail();
  }

 private:
  // Reads everything before the pixels and requests `channels` channels of 8 bits. Returns false
  // after an error.
  bool ReadHeader(int channels) {
    if (setjmp(state_.jump) != 0) return false;
    png_set_user_limits(png_, PNG_USER_WIDTH_MAX, PNG_USER_HEIGHT_MAX);
    png_set_chunk_malloc_max(png_, size_t{8} << 20);
    png_read_info(png_, info_);
    const int type = png_get_color_type(png_, info_);
    png_set_strip_16(png_);
    png_set_packing(png_);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);
    png_set_strip_alpha(png_);
    const bool color = (type & PNG_COLOR_MASK_COLOR) != 0;
    if (channels == 3 && !color) png_set_gray_to_rgb(png_);
    if (channels == 1 && color) png_set_rgb_to_gray(png_, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  // Returns false after an error.
  bool ReadRows(png_bytepp rows) {
    if (setjmp(state_.jump) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  [[noreturn]] void Fail() const {
    throw DataError(fmt::format("[io.image] png: cannot be decoded: {}", state_.message));
  }

  PngState state_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

// Returns false after an error.
bool Write(png_structp png, png_infop info, PngState& state, const ImageView& image) {
  if (setjmp(state.jump) != 0) return false;
  png_set_IHDR(png, info, image.width, image.height, 8,
               image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  const size_t row_bytes = static_cast<size_t>(image.width) * image.channels;
  for (int y = 0; y < image.height; ++y) png_write_row(png, image.pixels + y * row_bytes);
  png_write_end(png, info);
  return true;
}

}  // namespace

void DecodePng(std::string_view bytes, int channels, Image* image) {
  PngReader(bytes).Decode(channels, image);
}

std::string EncodePng(const ImageView& image) {
  CAROLE_CHECK(image.channels == 1 || image.channels == 3, "a PNG of {} channels", image.channels);
  std::string file;
  PngState state;
  state.written = &file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &state, OnError, OnWarning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  CAROLE_CHECK(info != nullptr, "png_create_write_struct failed");
  const auto append = [](png_structp p, png_bytep data, size_t count) {
    static_cast<PngState*>(png_get_io_ptr(p))
        ->written->append(reinterpret_cast<char*>(data), count);
  };
  png_set_write_fn(png, &state, append, nullptr);
  const bool written = Write(png, info, state, image);
  png_destroy_write_struct(&png, &info);
  CAROLE_CHECK(written, "PNG of {}x{}: {}", image.height, image.width, state.message);
  return file;
}

}  // namespace carole::io
