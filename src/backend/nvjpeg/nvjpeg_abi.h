// Declarations of the functions of nvJPEG (nvjpeg.h, versions 12 and 13) and of the CUDA driver
// (cuda.h) that nvjpeg.cpp calls. The libraries are loaded at run time, and their headers may be
// absent when the program is built. tests/interop/check_nvjpeg.py compares these declarations with
// the real headers.
#pragma once

#include <cstddef>

namespace carole::gpu_jpeg::driver {

enum Result : int { kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100 };
using Device = int;
using Context = struct CUctx_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Pointer = unsigned long long;  // CUdeviceptr
enum MemoryType : int { kHost = 1, kDevice = 2 };
inline constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kBlockingSync = 1;   // CU_EVENT_BLOCKING_SYNC: waiting threads sleep
inline constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

// CUDA_MEMCPY2D_v2.
struct Copy2D {
  size_t from_x_bytes = 0, from_y = 0;
  MemoryType from_type = kDevice;
  const void* from_host = nullptr;
  Pointer from_device = 0;
  void* from_array = nullptr;
  size_t from_pitch = 0;
  size_t to_x_bytes = 0, to_y = 0;
  MemoryType to_type = kHost;
  void* to_host = nullptr;
  Pointer to_device = 0;
  void* to_array = nullptr;
  size_t to_pitch = 0;
  size_t width_bytes = 0, height = 0;
};

using Init = Result(unsigned flags);
using GetErrorName = Result(Result error, const char** name);
using DeviceGetCount = Result(int* count);
using DeviceGet = Result(Device* device, int ordinal);
using PrimaryContextRetain = Result(Context* context, Device device);
using PrimaryContextRelease = Result(Device device);
using ContextSetCurrent = Result(Context context);
using StreamCreate = Result(Stream* stream, unsigned flags);
using StreamDestroy = Result(Stream stream);
using StreamSynchronize = Result(Stream stream);
using EventCreate = Result(Event* event, unsigned flags);
using EventDestroy = Result(Event event);
using EventRecord = Result(Event event, Stream stream);
using EventSynchronize = Result(Event event);
using MemoryAllocate = Result(Pointer* memory, size_t bytes);
using MemoryFree = Result(Pointer memory);
using HostAllocate = Result(void** memory, size_t bytes, unsigned flags);
using HostFree = Result(void* memory);
using MemoryCopy2D = Result(const Copy2D* copy, Stream stream);

}  // namespace carole::gpu_jpeg::driver

namespace carole::gpu_jpeg::nvjpeg {

enum Status : int {
  kSuccess = 0,
  kInvalidParameter = 2,
  kBadJpeg = 3,
  kJpegNotSupported = 4,
  kAllocatorFailure = 5,
  kExecutionFailed = 6,
  kInternalError = 8,
  kImplementationNotSupported = 9,
  kIncompleteBitstream = 10
};
using Handle = struct nvjpegHandle*;
using State = struct nvjpegJpegState*;
enum Backend : int { kDefaultBackend = 0 };
inline constexpr unsigned kInterpolates = 1
                                          << 5;  // interpolates chroma as libjpeg does; since 12.1
enum Subsampling : int { kUnknownSubsampling = -1 };
enum OutputFormat : int { kInterleavedRgb = 5 };
inline constexpr int kMaxComponents = 4;

struct Image {
  unsigned char* channel[kMaxComponents];  // in GPU memory
  size_t pitch[kMaxComponents];            // bytes of a row
};

using CreateEx = Status(Backend backend, void* device_allocator, void* pinned_allocator,
                        unsigned flags, Handle* handle);
using Destroy = Status(Handle handle);
using SetPadding = Status(size_t padding, Handle handle);
using StateCreate = Status(Handle handle, State* state);
using StateDestroy = Status(State state);
using GetImageInfo = Status(Handle handle, const unsigned char* data, size_t bytes,
                            int* num_components, Subsampling* subsampling, int* widths,
                            int* heights);
using Decode = Status(Handle handle, State state, const unsigned char* data, size_t bytes,
                      OutputFormat format, Image* image, driver::Stream stream);

}  // namespace carole::gpu_jpeg::nvjpeg
