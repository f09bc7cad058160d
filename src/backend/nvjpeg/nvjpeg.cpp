#include "src/backend/nvjpeg/nvjpeg.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "src/backend/nvjpeg/nvjpeg_abi.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::gpu_jpeg {
namespace {

constexpr const char* kTag = "io.nvjpeg";
std::string OrUseCpu() { return "or use " + Option("jpeg_decoder", "cpu"); }
std::string UseCpu() {
  return "use " + Option("jpeg_decoder", "cpu") + " to decode without the GPU";
}
// The smallest size of a buffer, which is enough for most photos. To enlarge a buffer is slow: it
// has to be freed first, and that waits for all work on the GPU, including training.
constexpr size_t kMinBufferBytes = 4 << 20;

// Loads the first of these libraries that can be loaded, and keeps it loaded. Throws ConfigError if
// none can.
void* LoadLibrary(const std::vector<std::string>& names, const char* hint) {
  std::string problem;
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (problem.empty()) problem = dlerror();
  }
  throw ConfigError(fmt::format("[io.nvjpeg] {}: cannot be loaded: {}; {}, {}", names[0], problem,
                                hint, OrUseCpu()));
}

// Sets `function` to the library's function of this name. Throws ConfigError if there is none.
template <typename Function>
void LoadSymbol(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return;
  throw ConfigError(fmt::format("[io.nvjpeg] {}: missing in the library: want version 12 or 13; {}",
                                name, OrUseCpu()));
}

// The functions of the CUDA driver.
struct Driver {
  explicit Driver(const std::string& name) {
    void* library = LoadLibrary({name}, "install the NVIDIA driver");
    LoadSymbol(library, "cuInit", init);
    LoadSymbol(library, "cuGetErrorName", get_error_name);
    LoadSymbol(library, "cuDeviceGetCount", device_get_count);
    LoadSymbol(library, "cuDeviceGet", device_get);
    LoadSymbol(library, "cuDevicePrimaryCtxRetain", context_retain);
    LoadSymbol(library, "cuDevicePrimaryCtxRelease_v2", context_release);
    LoadSymbol(library, "cuCtxSetCurrent", context_set_current);
    LoadSymbol(library, "cuStreamCreate", stream_create);
    LoadSymbol(library, "cuStreamDestroy_v2", stream_destroy);
    LoadSymbol(library, "cuStreamSynchronize", stream_synchronize);
    LoadSymbol(library, "cuEventCreate", event_create);
    LoadSymbol(library, "cuEventDestroy_v2", event_destroy);
    LoadSymbol(library, "cuEventRecord", event_record);
    LoadSymbol(library, "cuEventSynchronize", event_synchronize);
    LoadSymbol(library, "cuMemAlloc_v2", allocate);
    LoadSymbol(library, "cuMemFree_v2", free);
    LoadSymbol(library, "cuMemHostAlloc", host_allocate);
    LoadSymbol(library, "cuMemFreeHost", host_free);
    LoadSymbol(library, "cuMemcpy2DAsync_v2", copy_2d);
  }

  std::string Name(driver::Result result) const {
    const char* name = nullptr;
    get_error_name(result, &name);
    return name != nullptr ? name : fmt::format("error {}", static_cast<int>(result));
  }
  void Check(driver::Result result, const char* call) const {
    if (result == driver::kSuccess) return;
    throw DeviceError(
        fmt::format("[io.nvjpeg] {}: {}{}", call, Name(result),
                    result == driver::kOutOfMemory
                        ? fmt::format("; use a smaller {}, or {}", Option("batch_size"),
                                      Option("jpeg_decoder", "cpu"))
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
  driver::EventCreate* event_create;
  driver::EventDestroy* event_destroy;
  driver::EventRecord* event_record;
  driver::EventSynchronize* event_synchronize;
  driver::MemoryAllocate* allocate;
  driver::MemoryFree* free;
  driver::HostAllocate* host_allocate;
  driver::HostFree* host_free;
  driver::MemoryCopy2D* copy_2d;
};

// The functions of nvJPEG.
struct Library {
  explicit Library(const std::vector<std::string>& names) {
    void* library = LoadLibrary(names,
                                "install nvJPEG of the CUDA toolkit, add its folder to "
                                "LD_LIBRARY_PATH");
    LoadSymbol(library, "nvjpegCreateEx", create);
    LoadSymbol(library, "nvjpegDestroy", destroy);
    LoadSymbol(library, "nvjpegSetDeviceMemoryPadding", set_device_padding);
    LoadSymbol(library, "nvjpegSetPinnedMemoryPadding", set_pinned_padding);
    LoadSymbol(library, "nvjpegJpegStateCreate", state_create);
    LoadSymbol(library, "nvjpegJpegStateDestroy", state_destroy);
    LoadSymbol(library, "nvjpegGetImageInfo", get_image_info);
    LoadSymbol(library, "nvjpegDecode", decode);
  }

  nvjpeg::CreateEx* create;
  nvjpeg::Destroy* destroy;
  nvjpeg::SetPadding* set_device_padding;
  nvjpeg::SetPadding* set_pinned_padding;
  nvjpeg::StateCreate* state_create;
  nvjpeg::StateDestroy* state_destroy;
  nvjpeg::GetImageInfo* get_image_info;
  nvjpeg::Decode* decode;
};

// A buffer that only grows. Pointer is a pointer to host memory or a driver::Pointer.
template <typename Pointer>
struct GrowingBuffer {
  Pointer memory{};
  size_t bytes = 0;
};

// Whether the status means that nvJPEG cannot decode this image.
bool IsImageError(nvjpeg::Status status) {
  return status == nvjpeg::kBadJpeg || status == nvjpeg::kJpegNotSupported ||
         status == nvjpeg::kImplementationNotSupported || status == nvjpeg::kIncompleteBitstream;
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
    const nvjpeg::Status status = Create();
    if (status != nvjpeg::kSuccess) {
      driver.context_release(device_);
      throw ConfigError(
          fmt::format("[io.nvjpeg] nvjpegCreateEx: status {}: this version of nvJPEG does not work "
                      "with this GPU "
                      "or its driver; use another version, {}",
                      static_cast<int>(status), OrUseCpu()));
    }
    // If nvJPEG refuses these sizes, its memory grows in smaller steps; that is no error.
    library.set_device_padding(kMinBufferBytes, handle_);
    library.set_pinned_padding(kMinBufferBytes, handle_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    TryMakeCurrent();
    library.destroy(handle_);
    driver.context_release(device_);
  }

  // Makes the GPU's primary context, which the CUDA runtime uses too, current in this thread.
  void MakeCurrent() const { driver.Check(TryMakeCurrent(), "cuCtxSetCurrent"); }
  driver::Result TryMakeCurrent() const { return driver.context_set_current(context_); }
  nvjpeg::Handle handle() const { return handle_; }

  // Both warnings are logged once, not for each image.
  void WarnOfMemory(const char* call) const {
    if (warned_of_memory_.test_and_set()) return;
    LogWarning(kTag,
               "{}: out of GPU memory: JPEGs that do not fit are decoded on the CPU; use a smaller "
               "{}, {}",
               call, Option("batch_size"), OrUseCpu());
  }
  void WarnOfStatus(const char* call, nvjpeg::Status status) const {
    if (warned_of_status_.test_and_set()) return;
    LogWarning(kTag, "{}: status {} for a JPEG: this one and others like it are decoded on the CPU",
               call, static_cast<int>(status));
  }

  const Driver driver;
  const Library library;

 private:
  nvjpeg::Status Create() {
    const auto create = [&](unsigned flags) {
      return library.create(nvjpeg::kDefaultBackend, nullptr, nullptr, flags, &handle_);
    };
    const nvjpeg::Status status = create(nvjpeg::kInterpolates);
    if (status == nvjpeg::kSuccess) return status;
    const nvjpeg::Status plain = create(0);
    if (plain == nvjpeg::kSuccess) {
      LogWarning(
          kTag,
          "nvjpegCreateEx: status {}: chroma cannot be interpolated and is repeated instead, "
          "so pixels differ more from those of the CPU decoder; use nvJPEG 12.1 or later, {}",
          static_cast<int>(status), OrUseCpu());
    }
    return plain;
  }

  void Require(driver::Result result, const char* call) const {
    if (result == driver::kSuccess) return;
    throw ConfigError(
        fmt::format("[io.nvjpeg] {}: no GPU to decode on: {}; use a machine with a GPU, {}", call,
                    driver.Name(result), OrUseCpu()));
  }

  driver::Device device_ = 0;
  driver::Context context_ = nullptr;
  nvjpeg::Handle handle_ = nullptr;
  mutable std::atomic_flag warned_of_memory_;
  mutable std::atomic_flag warned_of_status_;
};

NvJpeg::NvJpeg(int gpu, const NvJpegLibraries& libraries)
    : impl_(std::make_unique<Impl>(gpu, libraries)) {}
NvJpeg::~NvJpeg() = default;

class NvJpeg::Decoder : public io::ImageDecoder {
 public:
  // Delegates first, so that the object is complete: if a call below throws, the destructor frees
  // what was created so far.
  explicit Decoder(const NvJpeg::Impl& shared) : Decoder(&shared) {
    shared_.MakeCurrent();
    driver().Check(driver().stream_create(&stream_, driver::kNonBlocking), "cuStreamCreate");
    driver().Check(driver().event_create(&copied_, driver::kBlockingSync | driver::kDisableTiming),
                   "cuEventCreate");
    const nvjpeg::Status status = shared_.library.state_create(shared_.handle(), &state_);
    if (status != nvjpeg::kSuccess) {
      throw DeviceError(fmt::format("[io.nvjpeg] nvjpegJpegStateCreate: status {}; {}",
                                    static_cast<int>(status), UseCpu()));
    }
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() override {
    shared_.TryMakeCurrent();  // this may be another thread than the one that decoded
    if (stream_ != nullptr) driver().stream_synchronize(stream_);
    if (state_ != nullptr) shared_.library.state_destroy(state_);
    if (pixels_.bytes != 0) driver().free(pixels_.memory);
    if (staging_.bytes != 0) driver().host_free(staging_.memory);
    if (copied_ != nullptr) driver().event_destroy(copied_);
    if (stream_ != nullptr) driver().stream_destroy(stream_);
  }

  bool Decode(std::string_view bytes, int height, int width, const io::Region& window,
              uint8_t* out) override {
    const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
    const size_t pitch = size_t{3} * width, row_bytes = size_t{3} * window.width;
    const size_t out_bytes = row_bytes * window.height;
    if (!HasSize(data, bytes.size(), height, width) || !Reserve(pitch * height, out_bytes))
      return false;
    nvjpeg::Image image{.channel = {reinterpret_cast<unsigned char*>(pixels_.memory)},
                        .pitch = {pitch}};
    const nvjpeg::Status status = shared_.library.decode(
        shared_.handle(), state_, data, bytes.size(), nvjpeg::kInterleavedRgb, &image, stream_);
    if (!Succeeded(status, "nvjpegDecode")) return false;
    const driver::Copy2D copy{.from_x_bytes = size_t{3} * window.left,
                              .from_y = static_cast<size_t>(window.top),
                              .from_device = pixels_.memory,
                              .from_pitch = pitch,
                              .to_host = staging_.memory,
                              .to_pitch = row_bytes,
                              .width_bytes = row_bytes,
                              .height = static_cast<size_t>(window.height)};
    driver().Check(driver().copy_2d(&copy, stream_), "cuMemcpy2DAsync");
    driver().Check(driver().event_record(copied_, stream_), "cuEventRecord");
    driver().Check(driver().event_synchronize(copied_), "cuEventSynchronize");
    std::memcpy(out, staging_.memory, out_bytes);
    return true;
  }

 private:
  explicit Decoder(const NvJpeg::Impl* shared) : shared_(*shared) {}

  const Driver& driver() const { return shared_.driver; }

  // Returns false if the CPU has to decode this image. Throws DeviceError if the GPU has failed.
  // The status does not tell which: nearly any status can be caused by the image, as photos of
  // ImageNet show (issues 3159, 3160 and 6026 of NVIDIA DALI). So this asks the driver.
  bool Succeeded(nvjpeg::Status status, const char* call) const {
    if (status == nvjpeg::kSuccess) return true;
    if (const driver::Result result = driver().stream_synchronize(stream_);
        result != driver::kSuccess) {
      throw DeviceError(fmt::format("[io.nvjpeg] {}: status {}, cuStreamSynchronize: {}; {}", call,
                                    static_cast<int>(status), driver().Name(result), UseCpu()));
    }
    if (status == nvjpeg::kAllocatorFailure) {
      shared_.WarnOfMemory(call);
    } else if (!IsImageError(status)) {
      shared_.WarnOfStatus(call, status);
    }
    return false;
  }

  // Whether nvJPEG reads the same size from the file as libjpeg did. It must be checked, because
  // nvJPEG writes as many pixels as it has read from the file.
  bool HasSize(const unsigned char* data, size_t bytes, int height, int width) const {
    int num_components = 0;
    nvjpeg::Subsampling subsampling{};
    int widths[nvjpeg::kMaxComponents] = {}, heights[nvjpeg::kMaxComponents] = {};
    const nvjpeg::Status status = shared_.library.get_image_info(
        shared_.handle(), data, bytes, &num_components, &subsampling, widths, heights);
    return Succeeded(status, "nvjpegGetImageInfo") && num_components == 3 &&
           subsampling != nvjpeg::kUnknownSubsampling && widths[0] == width && heights[0] == height;
  }

  // Makes both buffers large enough. Returns false if there is no memory.
  bool Reserve(size_t pixel_bytes, size_t staging_bytes) {
    return Grow(pixel_bytes, pixels_, "cuMemAlloc", driver().allocate, driver().free) &&
           Grow(
               staging_bytes, staging_, "cuMemHostAlloc",
               [&](void** memory, size_t bytes) {
                 return driver().host_allocate(memory, bytes, 0);
               },
               driver().host_free);
  }

  // Makes the buffer at least this large; its contents are lost. Returns false if there is no
  // memory.
  template <typename Pointer, typename Allocate, typename Free>
  bool Grow(size_t bytes, GrowingBuffer<Pointer>& buffer, const char* call,
            const Allocate& allocate, const Free& free) const {
    if (bytes <= buffer.bytes) return true;
    if (buffer.bytes != 0) free(buffer.memory);
    buffer = {};
    const size_t wanted = std::max(std::bit_ceil(bytes), kMinBufferBytes);
    const driver::Result result = allocate(&buffer.memory, wanted);
    if (result == driver::kOutOfMemory) {
      shared_.WarnOfMemory(call);
      return false;
    }
    driver().Check(result, call);
    buffer.bytes = wanted;
    return true;
  }

  const NvJpeg::Impl& shared_;
  driver::Stream stream_ = nullptr;
  driver::Event copied_ = nullptr;  // threads that wait for it sleep and leave the core to others
  nvjpeg::State state_ = nullptr;
  GrowingBuffer<driver::Pointer> pixels_;  // the whole image, in GPU memory
  GrowingBuffer<void*> staging_;           // the region, in pinned host memory
};

std::unique_ptr<io::ImageDecoder> NvJpeg::MakeDecoder() const {
  return std::make_unique<Decoder>(*impl_);
}

}  // namespace carole::gpu_jpeg
