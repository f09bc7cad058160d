// A fake libcuda.so.1. Device memory cannot be accessed by its address on the host. A stream runs
// its work when the stream, or an event in it, is waited for.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "tests/support/fake_gpu/fake_gpu.h"

using namespace carole::gpu_jpeg::driver;

struct carole::gpu_jpeg::driver::CUctx_st {};
struct carole::gpu_jpeg::driver::CUstream_st {
  std::mutex mutex;
  std::vector<std::function<void()>> work;
};
struct carole::gpu_jpeg::driver::CUevent_st {
  Stream stream = nullptr;
};

namespace {

constexpr Result kInvalidContext{201};
std::atomic<int> objects{0};
CUctx_st primary;
thread_local Context current = nullptr;

int Count() {
  const char* count = std::getenv("FAKE_GPU_COUNT");
  return count == nullptr ? 1 : std::atoi(count);
}

// Returns the status of an allocation by this function: an error if there is no context, or if a
// test asks for one.
Result Room(const char* function) {
  if (!FakeGpuHasContext()) return kInvalidContext;
  const char* full = std::getenv("FAKE_CUDA_FULL");
  return full != nullptr && std::strcmp(full, function) == 0 ? kOutOfMemory : kSuccess;
}

}  // namespace

void carole::fake_gpu::Push(Stream stream, std::function<void()> work) {
  const std::lock_guard lock(stream->mutex);
  stream->work.push_back(std::move(work));
}

extern "C" {

int FakeGpuObjects() { return objects; }
void FakeGpuCount(int change) { objects += change; }
bool FakeGpuHasContext() { return current == &primary; }

Result cuDriverGetVersion(int* version) {
  *version = 9000;
  return kSuccess;
}
Result cuInit(unsigned) { return Count() > 0 ? kSuccess : kNoDevice; }
Result cuGetErrorName(Result error, const char** name) {
  *name = error == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OF_A_FAKE";
  return kSuccess;
}
Result cuDeviceGetCount(int* count) {
  *count = Count();
  return kSuccess;
}
Result cuDeviceGet(Device* device, int ordinal) {
  *device = ordinal;
  return ordinal < Count() ? kSuccess : kNoDevice;
}
Result cuDevicePrimaryCtxRetain(Context* context, Device) {
  ++objects;
  *context = &primary;
  return kSuccess;
}
Result cuDevicePrimaryCtxRelease_v2(Device) {
  --objects;
  return kSuccess;
}
Result cuCtxSetCurrent(Context context) {
  current = context;
  return kSuccess;
}
Result cuStreamCreate(Stream* stream, unsigned) {
  if (!FakeGpuHasContext()) return kInvalidContext;
  ++objects;
  *stream = new CUstream_st;
  return kSuccess;
}
Result cuStreamDestroy_v2(Stream stream) {
  --objects;
  delete stream;
  return kSuccess;
}
Result cuStreamSynchronize(Stream stream) {
  if (const char* status = std::getenv("FAKE_CUDA_STATUS"))
    return static_cast<Result>(std::atoi(status));
  const std::lock_guard lock(stream->mutex);
  for (const auto& work : stream->work) work();
  stream->work.clear();
  return kSuccess;
}
Result cuEventCreate(Event* event, unsigned) {
  if (!FakeGpuHasContext()) return kInvalidContext;
  ++objects;
  *event = new CUevent_st;
  return kSuccess;
}
Result cuEventDestroy_v2(Event event) {
  --objects;
  delete event;
  return kSuccess;
}
Result cuEventRecord(Event event, Stream stream) {
  event->stream = stream;
  return kSuccess;
}
Result cuEventSynchronize(Event event) {
  return event->stream == nullptr ? kSuccess : cuStreamSynchronize(event->stream);
}
Result cuMemAlloc_v2(Pointer* memory, size_t bytes) {
  if (const Result room = Room("cuMemAlloc"); room != kSuccess) return room;
  ++objects;
  const auto on_host = reinterpret_cast<Pointer>(std::malloc(bytes));
  *memory = on_host + carole::fake_gpu::kOffset;
  return kSuccess;
}
Result cuMemFree_v2(Pointer memory) {
  if (!FakeGpuHasContext()) return kInvalidContext;
  --objects;
  std::free(carole::fake_gpu::OnHost(memory));
  return kSuccess;
}
Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  if (const Result room = Room("cuMemHostAlloc"); room != kSuccess) return room;
  ++objects;
  *memory = std::malloc(bytes);
  return kSuccess;
}
Result cuMemFreeHost(void* memory) {
  if (!FakeGpuHasContext()) return kInvalidContext;
  --objects;
  std::free(memory);
  return kSuccess;
}
Result cuMemcpy2DAsync_v2(const Copy2D* copy, Stream stream) {
  if (copy->from_type != kDevice || copy->to_type != kHost || !FakeGpuHasContext())
    return kInvalidContext;
  carole::fake_gpu::Push(stream, [c = *copy] {
    for (size_t y = 0; y < c.height; ++y) {
      std::memcpy(
          static_cast<char*>(c.to_host) + (c.to_y + y) * c.to_pitch + c.to_x_bytes,
          carole::fake_gpu::OnHost(c.from_device) + (c.from_y + y) * c.from_pitch + c.from_x_bytes,
          c.width_bytes);
    }
  });
  return kSuccess;
}

}  // extern "C"
