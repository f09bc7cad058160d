#include "io/jpeg/nvjpeg.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

#include "io/jpeg/nvjpeg_abi.h"
#include "src/core/error.h"

namespace carole::io::jpeg {
namespace {

constexpr const char* kOtherwise = "or use --jpeg_decoder=cpu";

// The first of these libraries that loads; it stays loaded.
void* Open(const std::vector<std::string>& names, const char* hint) {
  std::string trouble;
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (trouble.empty()) trouble = dlerror();
  }
  throw ConfigError(fmt::format("[io.nvjpeg] {}: cannot be loaded: {}; {}, {}", names[0], trouble,
                                hint, kOtherwise));
}

template <typename Function>
void Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return;
  throw ConfigError(fmt::format("[io.nvjpeg] {}: missing in the library: want version 12 or 13; {}",
                                name, kOtherwise));
}

struct Driver {
  explicit Driver(const std::string& name) {
    void* library = Open({name}, "this machine needs NVIDIA's driver");
    Find(library, "cuInit", init);
    Find(library, "cuGetErrorName", get_error_name);
    Find(library, "cuDeviceGetCount", device_get_count);
    Find(library, "cuDeviceGet", device_get);
    Find(library, "cuDevicePrimaryCtxRetain", context_retain);
    Find(library, "cuDevicePrimaryCtxRelease_v2", context_release);
    Find(library, "cuCtxSetCurrent", context_set_current);
    Find(library, "cuStreamCreate", stream_create);
    Find(library, "cuStreamDestroy_v2", stream_destroy);
    Find(library, "cuStreamSynchronize", stream_synchronize);
    Find(library, "cuMemAlloc_v2", allocate);
    Find(library, "cuMemFree_v2", free);
    Find(library, "cuMemcpy2DAsync_v2", copy_2d);
  }

  std::string Name(driver::Result result) const {
    const char* name = nullptr;
    get_error_name(result, &name);
    return name != nullptr ? name : fmt::format("error {}", static_cast<int>(result));
  }
  void Check(driver::Result result, const char* call) const {
    if (result == driver::kSuccess) return;
    throw DeviceError(fmt::format("[io.nvjpeg] {}: {}{}", call, Name(result),
                                  result == driver::kOutOfMemory
                                      ? "; use a smaller --batch_size, or --jpeg_decoder=cpu"
                                      : ""));
  }

  driver::Init* init;
  driver::GetErrorName* get_error_name;
  driver::DeviceGetCount* device_get_count;
  driver::DeviceGet* device_get;
  driver::PrimaryContextRetain* context_retain;
  driver::PrimaryContextRelease* context_release;
  driver::ContextSetCurrent* context_set_current;
  driver::StreamCreate* stream_create;
  driver::StreamDestroy* stream_destroy;
  driver::StreamSynchronize* stream_synchronize;
  driver::MemoryAllocate* allocate;
  driver::MemoryFree* free;
  driver::MemoryCopy2D* copy_2d;
};

struct Library {
  explicit Library(const std::vector<std::string>& names) {
    void* library = Open(names,
                         "install the CUDA toolkit's nvJPEG or add its folder to "
                         "LD_LIBRARY_PATH");
    Find(library, "nvjpegCreateEx", create);
    Find(library, "nvjpegDestroy", destroy);
    Find(library, "nvjpegJpegStateCreate", state_create);
    Find(library, "nvjpegJpegStateDestroy", state_destroy);
    Find(library, "nvjpegGetImageInfo", get_image_info);
    Find(library, "nvjpegDecode", decode);
  }

  nvjpeg::CreateEx* create;
  nvjpeg::Destroy* destroy;
  nvjpeg::StateCreate* state_create;
  nvjpeg::StateDestroy* state_destroy;
  nvjpeg::GetImageInfo* get_image_info;
  nvjpeg::Decode* decode;
};

// Whether the image is at fault, and not the GPU: then the CPU's decoder has the last word.
bool IsOfTheImage(nvjpeg::Status status) {
  return status == nvjpeg::kBadJpeg || status == nvjpeg::kJpegNotSupported ||
         status == nvjpeg::kImplementationNotSupported || status == nvjpeg::kIncompleteBitstream;
}

void Check(nvjpeg::Status status, const char* call) {
  if (status == nvjpeg::kSuccess) return;
  throw DeviceError(
      fmt::format("[io.nvjpeg] {}: status {}; --jpeg_decoder=cpu does without the GPU", call,
                  static_cast<int>(status)));
}

}  // namespace

class NvJpeg::Impl {
 public:
  Impl(int gpu, const NvJpegLibraries& libraries)
      : driver(libraries.driver), library(libraries.nvjpeg) {
    Require(driver.init(0), "cuInit");
    int count = 0;
    Require(driver.device_get_count(&count), "cuDeviceGetCount");
    if (count == 0) Require(driver::kNoDevice, "cuDeviceGetCount");
    Require(driver.device_get(&device_, gpu % count), "cuDeviceGet");
    Require(driver.context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
    MakeCurrent();
    const nvjpeg::Status status =
        library.create(nvjpeg::kDefaultBackend, nullptr, nullptr, nvjpeg::kInterpolates, &handle_);
    if (status == nvjpeg::kSuccess) return;
    driver.context_release(device_);
    throw ConfigError(fmt::format(
        "[io.nvjpeg] nvjpegCreateEx: status {}: this nvJPEG does not work on this GPU and its "
        "driver; {}",
        static_cast<int>(status), kOtherwise));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    driver.context_set_current(context_);
    library.destroy(handle_);
    driver.context_release(device_);
  }

  // The GPU's own context, which CUDA's runtime uses too, for this thread.
  void MakeCurrent() const {
    driver.Check(driver.context_set_current(context_), "cuCtxSetCurrent");
  }
  nvjpeg::Handle handle() const { return handle_; }

  const Driver driver;
  const Library library;

 private:
  void Require(driver::Result result, const char* call) const {
    if (result == driver::kSuccess) return;
    throw ConfigError(fmt::format("[io.nvjpeg] {}: no GPU to decode on: {}; {}", call,
                                  driver.Name(result), kOtherwise));
  }

  driver::Device device_ = 0;
  driver::Context context_ = nullptr;
  nvjpeg::Handle handle_ = nullptr;
};

NvJpeg::NvJpeg(int gpu, const NvJpegLibraries& libraries)
    : impl_(std::make_unique<Impl>(gpu, libraries)) {}
NvJpeg::~NvJpeg() = default;

class NvJpegDecoder::Impl {
 public:
  explicit Impl(const NvJpeg::Impl& shared) : shared_(shared) {
    shared_.MakeCurrent();
    driver().Check(driver().stream_create(&stream_, driver::kNonBlocking), "cuStreamCreate");
    const nvjpeg::Status status = shared_.library.state_create(shared_.handle(), &state_);
    if (status != nvjpeg::kSuccess) driver().stream_destroy(stream_);
    Check(status, "nvjpegJpegStateCreate");
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    driver().stream_synchronize(stream_);
    shared_.library.state_destroy(state_);
    if (pixels_ != 0) driver().free(pixels_);
    driver().stream_destroy(stream_);
  }

  bool Decode(std::string_view bytes, int height, int width, const Window& window, uint8_t* out) {
    const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
    if (!HasSize(data, bytes.size(), height, width)) return false;
    const size_t pitch = size_t{3} * width;
    Reserve(pitch * height);
    nvjpeg::Image image{.channel = {reinterpret_cast<unsigned char*>(pixels_)}, .pitch = {pitch}};
    const nvjpeg::Status status = shared_.library.decode(
        shared_.handle(), state_, data, bytes.size(), nvjpeg::kInterleavedRgb, &image, stream_);
    if (IsOfTheImage(status)) return false;
    Check(status, "nvjpegDecode");
    const size_t row_bytes = size_t{3} * window.width;
    const driver::Copy2D copy{.from_x_bytes = size_t{3} * window.left,
                              .from_y = static_cast<size_t>(window.top),
                              .from_device = pixels_,
                              .from_pitch = pitch,
                              .to_host = out,
                              .to_pitch = row_bytes,
                              .width_bytes = row_bytes,
                              .height = static_cast<size_t>(window.height)};
    driver().Check(driver().copy_2d(&copy, stream_), "cuMemcpy2DAsync");
    driver().Check(driver().stream_synchronize(stream_), "cuStreamSynchronize");
    return true;
  }

 private:
  const Driver& driver() const { return shared_.driver; }

  // Whether the library sees the picture that libjpeg sees: it writes as many pixels as it sees.
  bool HasSize(const unsigned char* data, size_t bytes, int height, int width) const {
    int num_components = 0;
    nvjpeg::Subsampling subsampling{};
    int widths[nvjpeg::kMaxComponents] = {}, heights[nvjpeg::kMaxComponents] = {};
    const nvjpeg::Status status = shared_.library.get_image_info(
        shared_.handle(), data, bytes, &num_components, &subsampling, widths, heights);
    if (IsOfTheImage(status)) return false;
    Check(status, "nvjpegGetImageInfo");
    return num_components == 3 && subsampling != nvjpeg::kUnknownSubsampling &&
           widths[0] == width && heights[0] == height;
  }

  void Reserve(size_t bytes) {
    if (bytes <= capacity_) return;
    if (pixels_ != 0) driver().free(std::exchange(pixels_, 0));
    capacity_ = 0;
    driver().Check(driver().allocate(&pixels_, bytes), "cuMemAlloc");
    capacity_ = bytes;
  }

  const NvJpeg::Impl& shared_;
  driver::Stream stream_ = nullptr;
  nvjpeg::State state_ = nullptr;
  driver::Pointer pixels_ = 0;  // of the whole picture, on the GPU
  size_t capacity_ = 0;
};

NvJpegDecoder::NvJpegDecoder(const NvJpeg& library)
    : impl_(std::make_unique<Impl>(*library.impl_)) {}
NvJpegDecoder::~NvJpegDecoder() = default;

bool NvJpegDecoder::Decode(std::string_view bytes, int height, int width, const Window& window,
                           uint8_t* out) {
  return impl_->Decode(bytes, height, width, window, out);
}

}  // namespace carole::io::jpeg
