// Compares src/backend/nvjpeg/nvjpeg_abi.h with NVIDIA's own headers. It is compiled, never run.
#include "src/backend/nvjpeg/nvjpeg_abi.h"

#include <nvjpeg.h>

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>
#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

namespace ours = carole::gpu_jpeg;

// The binary interface of a function: the sizes of its arguments, and which are pointers.
template <typename Function>
struct Call;
template <typename Result, typename... Arguments>
struct Call<Result(Arguments...)> {
  using Widths = std::index_sequence<sizeof(Result), sizeof(Arguments)...>;
  using Pointers = std::integer_sequence<bool, std::is_pointer_v<Arguments>...>;
};
template <typename A, typename B>
constexpr bool kSame = std::is_same_v<typename Call<A>::Widths, typename Call<B>::Widths>&&
    std::is_same_v<typename Call<A>::Pointers, typename Call<B>::Pointers>;

static_assert(kSame<decltype(nvjpegCreateEx), ours::nvjpeg::CreateEx>);
static_assert(kSame<decltype(nvjpegDestroy), ours::nvjpeg::Destroy>);
static_assert(kSame<decltype(nvjpegSetDeviceMemoryPadding), ours::nvjpeg::SetPadding>);
static_assert(kSame<decltype(nvjpegSetPinnedMemoryPadding), ours::nvjpeg::SetPadding>);
static_assert(kSame<decltype(nvjpegJpegStateCreate), ours::nvjpeg::StateCreate>);
static_assert(kSame<decltype(nvjpegJpegStateDestroy), ours::nvjpeg::StateDestroy>);
static_assert(kSame<decltype(nvjpegGetImageInfo), ours::nvjpeg::GetImageInfo>);
static_assert(kSame<decltype(nvjpegDecode), ours::nvjpeg::Decode>);

static_assert(int{NVJPEG_STATUS_SUCCESS} == ours::nvjpeg::kSuccess);
static_assert(int{NVJPEG_STATUS_INVALID_PARAMETER} == ours::nvjpeg::kInvalidParameter);
static_assert(int{NVJPEG_STATUS_BAD_JPEG} == ours::nvjpeg::kBadJpeg);
static_assert(int{NVJPEG_STATUS_JPEG_NOT_SUPPORTED} == ours::nvjpeg::kJpegNotSupported);
static_assert(int{NVJPEG_STATUS_ALLOCATOR_FAILURE} == ours::nvjpeg::kAllocatorFailure);
static_assert(int{NVJPEG_STATUS_EXECUTION_FAILED} == ours::nvjpeg::kExecutionFailed);
static_assert(int{NVJPEG_STATUS_INTERNAL_ERROR} == ours::nvjpeg::kInternalError);
static_assert(int{NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED} ==
              ours::nvjpeg::kImplementationNotSupported);
static_assert(int{NVJPEG_STATUS_INCOMPLETE_BITSTREAM} == ours::nvjpeg::kIncompleteBitstream);
static_assert(int{NVJPEG_BACKEND_DEFAULT} == ours::nvjpeg::kDefaultBackend);
static_assert(NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION == ours::nvjpeg::kInterpolates);
static_assert(int{NVJPEG_CSS_UNKNOWN} == ours::nvjpeg::kUnknownSubsampling);
static_assert(int{NVJPEG_OUTPUT_RGBI} == ours::nvjpeg::kInterleavedRgb);
static_assert(NVJPEG_MAX_COMPONENT == ours::nvjpeg::kMaxComponents);
static_assert(sizeof(nvjpegImage_t) == sizeof(ours::nvjpeg::Image));
static_assert(offsetof(nvjpegImage_t, pitch) == offsetof(ours::nvjpeg::Image, pitch));

#ifdef CUDA_VERSION
namespace driver = carole::gpu_jpeg::driver;
static_assert(kSame<decltype(cuInit), driver::Init>);
static_assert(kSame<decltype(cuGetErrorName), driver::GetErrorName>);
static_assert(kSame<decltype(cuDeviceGetCount), driver::DeviceGetCount>);
static_assert(kSame<decltype(cuDeviceGet), driver::DeviceGet>);
static_assert(kSame<decltype(cuDevicePrimaryCtxRetain), driver::PrimaryContextRetain>);
static_assert(kSame<decltype(cuDevicePrimaryCtxRelease), driver::PrimaryContextRelease>);
static_assert(kSame<decltype(cuCtxSetCurrent), driver::ContextSetCurrent>);
static_assert(kSame<decltype(cuStreamCreate), driver::StreamCreate>);
static_assert(kSame<decltype(cuStreamDestroy), driver::StreamDestroy>);
static_assert(kSame<decltype(cuStreamSynchronize), driver::StreamSynchronize>);
static_assert(kSame<decltype(cuEventCreate), driver::EventCreate>);
static_assert(kSame<decltype(cuEventDestroy), driver::EventDestroy>);
static_assert(kSame<decltype(cuEventRecord), driver::EventRecord>);
static_assert(kSame<decltype(cuEventSynchronize), driver::EventSynchronize>);
static_assert(kSame<decltype(cuMemHostAlloc), driver::HostAllocate>);
static_assert(kSame<decltype(cuMemFreeHost), driver::HostFree>);
static_assert(kSame<decltype(cuMemAlloc), driver::MemoryAllocate>);
static_assert(kSame<decltype(cuMemFree), driver::MemoryFree>);
static_assert(kSame<decltype(cuMemcpy2DAsync), driver::MemoryCopy2D>);

// nvjpeg.cpp looks up these versioned symbols. The headers must map the plain names to them.
#define CAROLE_TEXT(name) CAROLE_TEXT_OF(name)
#define CAROLE_TEXT_OF(name) #name
constexpr std::string_view kNames[][2] = {
    {CAROLE_TEXT(cuDevicePrimaryCtxRelease), "cuDevicePrimaryCtxRelease_v2"},
    {CAROLE_TEXT(cuStreamDestroy), "cuStreamDestroy_v2"},
    {CAROLE_TEXT(cuEventCreate), "cuEventCreate"},
    {CAROLE_TEXT(cuEventDestroy), "cuEventDestroy_v2"},
    {CAROLE_TEXT(cuEventRecord), "cuEventRecord"},
    {CAROLE_TEXT(cuEventSynchronize), "cuEventSynchronize"},
    {CAROLE_TEXT(cuMemHostAlloc), "cuMemHostAlloc"},
    {CAROLE_TEXT(cuMemFreeHost), "cuMemFreeHost"},
    {CAROLE_TEXT(cuMemAlloc), "cuMemAlloc_v2"},
    {CAROLE_TEXT(cuMemFree), "cuMemFree_v2"},
    {CAROLE_TEXT(cuMemcpy2DAsync), "cuMemcpy2DAsync_v2"}};
static_assert([] {
  for (const auto& [theirs, wanted] : kNames)
    if (theirs != wanted) return false;
  return true;
}());

static_assert(CUDA_SUCCESS == int{driver::kSuccess});
static_assert(CUDA_ERROR_OUT_OF_MEMORY == int{driver::kOutOfMemory});
static_assert(CUDA_ERROR_NO_DEVICE == int{driver::kNoDevice});
static_assert(CU_STREAM_NON_BLOCKING == driver::kNonBlocking);
static_assert(CU_EVENT_BLOCKING_SYNC == driver::kBlockingSync);
static_assert(CU_EVENT_DISABLE_TIMING == driver::kDisableTiming);
static_assert(CU_MEMORYTYPE_HOST == int{driver::kHost});
static_assert(CU_MEMORYTYPE_DEVICE == int{driver::kDevice});
static_assert(sizeof(CUDA_MEMCPY2D) == sizeof(driver::Copy2D));
static_assert(offsetof(CUDA_MEMCPY2D, srcDevice) == offsetof(driver::Copy2D, from_device));
static_assert(offsetof(CUDA_MEMCPY2D, srcPitch) == offsetof(driver::Copy2D, from_pitch));
static_assert(offsetof(CUDA_MEMCPY2D, dstMemoryType) == offsetof(driver::Copy2D, to_type));
static_assert(offsetof(CUDA_MEMCPY2D, dstHost) == offsetof(driver::Copy2D, to_host));
static_assert(offsetof(CUDA_MEMCPY2D, dstPitch) == offsetof(driver::Copy2D, to_pitch));
static_assert(offsetof(CUDA_MEMCPY2D, Height) == offsetof(driver::Copy2D, height));
#endif
