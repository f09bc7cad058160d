// A fake libnvjpeg.so.13. It decodes baseline JPEGs with libjpeg and its accurate DCT, when the
// stream is waited for. It refuses progressive JPEGs.
#include <atomic>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>
// jpeglib.h needs FILE and size_t, so it comes last.
#include <jpeglib.h>

#include "tests/support/fake_gpu/fake_gpu.h"

using namespace carole::gpu_jpeg::nvjpeg;
using carole::gpu_jpeg::driver::Stream;

struct carole::gpu_jpeg::nvjpeg::nvjpegHandle {};
struct carole::gpu_jpeg::nvjpeg::nvjpegJpegState {
  std::atomic<bool> is_used{false};
};

namespace {

std::atomic<int> asked{0};
std::atomic<int> decoded{0};

// Reads a JPEG with libjpeg. Errors of libjpeg end in a longjmp to `jump`.
struct Reader {
  Reader() {
    jpeg.err = jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr j) {
      longjmp(static_cast<Reader*>(j->client_data)->jump, 1);
    };
    errors.emit_message = [](j_common_ptr, int) {};
    jpeg.client_data = this;
    jpeg_create_decompress(&jpeg);
  }
  ~Reader() { jpeg_destroy_decompress(&jpeg); }

  bool ReadHeader(const unsigned char* data, size_t bytes) {
    if (setjmp(jump) != 0) return false;
    jpeg_mem_src(&jpeg, data, bytes);
    jpeg_read_header(&jpeg, TRUE);
    return true;
  }
  bool ReadPixels(unsigned char* out, size_t pitch) {
    if (setjmp(jump) != 0) return false;
    jpeg.out_color_space = JCS_RGB;
    jpeg.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW row = out + jpeg.output_scanline * pitch;
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    return true;
  }

  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jmp_buf jump;
};

}  // namespace

extern "C" {

int FakeNvjpegAsked() { return asked; }
int FakeNvjpegDecoded() { return decoded; }

Status nvjpegCreateEx(Backend, void*, void*, unsigned flags, Handle* handle) {
  if (!FakeGpuHasContext()) return kExecutionFailed;
  if (flags != 0 && std::getenv("FAKE_NVJPEG_OLD") != nullptr) return kInvalidParameter;
  FakeGpuCount(1);
  *handle = new nvjpegHandle;
  return kSuccess;
}
Status nvjpegDestroy(Handle handle) {
  FakeGpuCount(-1);
  delete handle;
  return kSuccess;
}
Status nvjpegSetDeviceMemoryPadding(size_t, Handle) { return kSuccess; }
Status nvjpegSetPinnedMemoryPadding(size_t, Handle) { return kSuccess; }
Status nvjpegJpegStateCreate(Handle handle, State* state) {
  if (handle == nullptr || !FakeGpuHasContext()) return kExecutionFailed;
  FakeGpuCount(1);
  *state = new nvjpegJpegState;
  return kSuccess;
}
Status nvjpegJpegStateDestroy(State state) {
  FakeGpuCount(-1);
  delete state;
  return kSuccess;
}

Status nvjpegGetImageInfo(Handle, const unsigned char* data, size_t bytes, int* num_components,
                          Subsampling* subsampling, int* widths, int* heights) {
  ++asked;
  if (const char* status = std::getenv("FAKE_NVJPEG_INFO_STATUS"))
    return static_cast<Status>(std::atoi(status));
  Reader reader;
  if (!reader.ReadHeader(data, bytes)) return kBadJpeg;
  *num_components = reader.jpeg.num_components;
  *subsampling = Subsampling{0};
  widths[0] = static_cast<int>(reader.jpeg.image_width);
  heights[0] = static_cast<int>(reader.jpeg.image_height);
  return kSuccess;
}

Status nvjpegDecode(Handle, State state, const unsigned char* data, size_t bytes,
                    OutputFormat format, Image* image, Stream stream) {
  if (const char* status = std::getenv("FAKE_NVJPEG_STATUS"))
    return static_cast<Status>(std::atoi(status));
  if (format != kInterleavedRgb || stream == nullptr) return kInvalidParameter;
  if (!FakeGpuHasContext() || state->is_used.exchange(true)) return kInternalError;
  {
    Reader reader;
    const bool is_read = reader.ReadHeader(data, bytes);
    if (!is_read || reader.jpeg.progressive_mode != FALSE) {
      state->is_used = false;
      return is_read ? kJpegNotSupported : kBadJpeg;
    }
  }
  std::vector<unsigned char> copy(data,
                                  data + bytes);  // the caller may free `data` before the work
  carole::fake_gpu::Push(stream, [=, copy = std::move(copy), image = *image] {
    Reader reader;
    unsigned char* out =
        carole::fake_gpu::OnHost(reinterpret_cast<unsigned long long>(image.channel[0]));
    if (reader.ReadHeader(copy.data(), copy.size()) && reader.ReadPixels(out, image.pitch[0]))
      ++decoded;
    state->is_used = false;
  });
  return kSuccess;
}

}  // extern "C"
