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
constexpr const char* kOtherwise = "or use --jpeg_decoder=cpu";
constexpr const char* kWithoutGpu = "--jpeg_decoder=cpu does without the GPU";
// Freeing memory to get more waits for all that the GPU does, training too. This holds most photos.
constexpr size_t kLeastBytes = 4 << 20;

// The first of these libraries that loads; it stays loaded.
void* Open(const std::vector<std::string>& names, const char* hint) {
  std::string problem;
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (problem.empty()) problem = dlerror();
  }
  throw ConfigError(fmt::format("[io.nvjpeg] {}: cannot be loaded: {}; {}, {}", names[0], problem,
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
    Find(library, "cuEventCreate", event_create);
    Find(library, "cuEventDestroy_v2", event_destroy);
    Find(library, "cuEventRecord", event_record);
    Find(library, "cuEventSynchronize", event_synchronize);
    Find(library, "cuMemAlloc_v2", allocate);
    Find(library, "cuMemFree_v2", free);
    Find(library, "cuMemHostAlloc", host_allocate);
    Find(library, "cuMemFreeHost", host_free);
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

struct Library {
  explicit Library(const std::vector<std::string>& names) {
    void* library = Open(names,
                         "install the CUDA toolkit's nvJPEG or add its folder to "
                         "LD_LIBRARY_PATH");
    Find(library, "nvjpegCreateEx", create);
    Find(library, "nvjpegDestroy", destroy);
    Find(library, "nvjpegSetDeviceMemoryPadding", set_device_padding);
    Find(library, "nvjpegSetPinnedMemoryPadding", set_pinned_padding);
    Find(library, "nvjpegJpegStateCreate", state_create);
    Find(library, "nvjpegJpegStateDestroy", state_destroy);
    Find(library, "nvjpegGetImageInfo", get_image_info);
    Find(library, "nvjpegDecode", decode);
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

// Memory that only grows.
template <typename Pointer>
struct Room {
  Pointer memory{};
  size_t bytes = 0;
};

// Whether a status says what is the matter with the image.
bool IsOfTheImage(nvjpeg::Status status) {
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
      throw ConfigError(fmt::format(
          "[io.nvjpeg] nvjpegCreateEx: status {}: this nvJPEG does not work on this GPU and its "
          "driver; {}",
          static_cast<int>(status), kOtherwise));
    }
    // Where they are refused, its memory grows in smaller steps.
    library.set_device_padding(kLeastBytes, handle_);
    library.set_pinned_padding(kLeastBytes, handle_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    TryMakeCurrent();
    library.destroy(handle_);
    driver.context_release(device_);
  }

  // The GPU's own context, which CUDA's runtime uses too, for this thread.
  void MakeCurrent() const { driver.Check(TryMakeCurrent(), "cuCtxSetCurrent"); }
  driver::Result TryMakeCurrent() const { return driver.context_set_current(context_); }
  nvjpeg::Handle handle() const { return handle_; }

  // Said once, and not for each image.
  void WarnOfMemory(const char* call) const {
    if (warned_of_memory_.test_and_set()) return;
    LogWarning(kTag,
               "{}: out of memory: the CPU decodes the JPEGs that find none; use a smaller "
               "--batch_size, {}",
               call, kOtherwise);
  }
  void WarnOfStatus(const char* call, nvjpeg::Status status) const {
    if (warned_of_status_.test_and_set()) return;
    LogWarning(kTag, "{}: status {} for a JPEG: the CPU decodes it, and all others like it", call,
               static_cast<int>(status));
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
      LogWarning(kTag,
                 "nvjpegCreateEx: status {} for interpolated chroma: it is repeated instead, and "
                 "pixels differ by more; use nvJPEG 12.1 or later, {}",
                 static_cast<int>(status), kOtherwise);
    }
    return plain;
  }

  void Require(driver::Result result, const char* call) const {
    if (result == driver::kSuccess) return;
    throw ConfigError(fmt::format("[io.nvjpeg] {}: no GPU to decode on: {}; {}", call,
                                  driver.Name(result), kOtherwise));
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
  // The object is complete before the first call: where one fails, the destructor tidies up.
  explicit Decoder(const NvJpeg::Impl& shared) : Decoder(&shared) {
    shared_.MakeCurrent();
    driver().Check(driver().stream_create(&stream_, driver::kNonBlocking), "cuStreamCreate");
    driver().Check(driver().event_create(&copied_, driver::kBlockingSync | driver::kDisableTiming),
                   "cuEventCreate");
    const nvjpeg::Status status = shared_.library.state_create(shared_.handle(), &state_);
    if (status != nvjpeg::kSuccess) {
      throw DeviceError(fmt::format("[io.nvjpeg] nvjpegJpegStateCreate: status {}; {}",
                                    static_cast<int>(status), kWithoutGpu));
    }
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() override {
    shared_.TryMakeCurrent();  // on whatever thread
    if (stream_ != nullptr) driver().stream_synchronize(stream_);
    if (state_ != nullptr) shared_.library.state_destroy(state_);
    if (pixels_.bytes != 0) driver().free(pixels_.memory);
    if (landing_.bytes != 0) driver().host_free(landing_.memory);
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
                              .to_host = landing_.memory,
                              .to_pitch = row_bytes,
                              .width_bytes = row_bytes,
                              .height = static_cast<size_t>(window.height)};
    driver().Check(driver().copy_2d(&copy, stream_), "cuMemcpy2DAsync");
    driver().Check(driver().event_record(copied_, stream_), "cuEventRecord");
    driver().Check(driver().event_synchronize(copied_), "cuEventSynchronize");
    std::memcpy(out, landing_.memory, out_bytes);
    return true;
  }

 private:
  explicit Decoder(const NvJpeg::Impl* shared) : shared_(*shared) {}

  const Driver& driver() const { return shared_.driver; }

  // False for an image that is left to the CPU. Nearly any status may be the image's fault, as
  // photos of ImageNet show (DALI's issues 3159, 3160, 6026); so the driver is asked whether it is
  // the GPU's.
  bool Succeeded(nvjpeg::Status status, const char* call) const {
    if (status == nvjpeg::kSuccess) return true;
    if (const driver::Result result = driver().stream_synchronize(stream_);
        result != driver::kSuccess) {
      throw DeviceError(fmt::format("[io.nvjpeg] {}: status {}, cuStreamSynchronize: {}; {}", call,
                                    static_cast<int>(status), driver().Name(result), kWithoutGpu));
    }
    if (status == nvjpeg::kAllocatorFailure) {
      shared_.WarnOfMemory(call);
    } else if (!IsOfTheImage(status)) {
      shared_.WarnOfStatus(call, status);
    }
    return false;
  }

  // Whether the library sees the picture that libjpeg sees: it writes as many pixels as it sees.
  bool HasSize(const unsigned char* data, size_t bytes, int height, int width) const {
    int num_components = 0;
    nvjpeg::Subsampling subsampling{};
    int widths[nvjpeg::kMaxComponents] = {}, heights[nvjpeg::kMaxComponents] = {};
    const nvjpeg::Status status = shared_.library.get_image_info(
        shared_.handle(), data, bytes, &num_components, &subsampling, widths, heights);
    return Succeeded(status, "nvjpegGetImageInfo") && num_components == 3 &&
           subsampling != nvjpeg::kUnknownSubsampling && widths[0] == width && heights[0] == height;
  }

  bool Reserve(size_t pixels, size_t landing) {
    return Grow(pixels, pixels_, "cuMemAlloc", driver().allocate, driver().free) &&
           Grow(
               landing, landing_, "cuMemHostAlloc",
               [&](void** memory, size_t bytes) {
                 return driver().host_allocate(memory, bytes, 0);
               },
               driver().host_free);
  }

  // False where there is no memory.
  template <typename Pointer, typename Allocate, typename Free>
  bool Grow(size_t bytes, Room<Pointer>& room, const char* call, const Allocate& allocate,
            const Free& free) const {
    if (bytes <= room.bytes) return true;
    if (room.bytes != 0) free(room.memory);
    room = {};
    const size_t wanted = std::max(std::bit_ceil(bytes), kLeastBytes);
    const driver::Result result = allocate(&room.memory, wanted);
    if (result == driver::kOutOfMemory) {
      shared_.WarnOfMemory(call);
      return false;
    }
    driver().Check(result, call);
    room.bytes = wanted;
    return true;
  }

  const NvJpeg::Impl& shared_;
  driver::Stream stream_ = nullptr;
  driver::Event copied_ = nullptr;  // a thread that waits for it sleeps: others have JPEGs too
  nvjpeg::State state_ = nullptr;
  Room<driver::Pointer> pixels_;  // of the whole picture, on the GPU
  Room<void*> landing_;           // of the window, in memory that the GPU writes to by itself
};

std::unique_ptr<io::ImageDecoder> NvJpeg::MakeDecoder() const {
  return std::make_unique<Decoder>(*impl_);
}

}  // namespace carole::gpu_jpeg
