// A library that makes any program print, at its end, what its GPU did in its last seconds. It
// prints to standard error, and lists the kernels of captured steps one by one. Copies from and to
// the host overlap with kernels: they are listed, but a GPU that only waits for them counts as
// idle.
//
//   CUDA_INJECTION64_PATH=build/libcarole_gpu_times.so build/carole bench train --backend=cuda …
//
// CUDA's driver loads the library and calls InitializeInjection(). CAROLE_GPU_TIMES_SECONDS sets
// the number of seconds (default 2).
#include <cupti.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "tests/bench/kernel_times.h"

namespace carole::bench {
namespace {

constexpr size_t kBufferBytes = 8 << 20;
constexpr size_t kBufferAlignment = 8;
constexpr size_t kMaxKernels = 4 << 20;  // with more records, the older half is dropped

// Protects the records: CUPTI delivers its buffers on a thread of its own.
std::mutex mutex;
std::vector<KernelTime> kernels, host_copies;

void CUPTIAPI GiveBuffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // no limit
}

void AddCopy(const CUpti_ActivityMemcpy5& copy) {
  switch (copy.copyKind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      host_copies.push_back({"copy from the host", copy.start, copy.end});
      break;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      host_copies.push_back({"copy to the host", copy.start, copy.end});
      break;
    default:
      kernels.push_back({"copy within the GPU", copy.start, copy.end});
  }
}

void Add(const CUpti_Activity* record) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    kernels.push_back({kernel->name, kernel->start, kernel->end});
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* memset = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    kernels.push_back({"memset", memset->start, memset->end});
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    AddCopy(*reinterpret_cast<const CUpti_ActivityMemcpy5*>(record));
  }
}

void CUPTIAPI TakeBuffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) Add(record);
  std::free(buffer);
  for (auto* times : {&kernels, &host_copies}) {
    if (times->size() > kMaxKernels) times->erase(times->begin(), times->end() - kMaxKernels / 2);
  }
}

std::string Readable(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  constexpr size_t kLongest = 160;
  return std::string(name != nullptr ? name.get() : symbol).substr(0, kLongest);
}

void PrintRows(const KernelSummary& summary) {
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(kShown, summary.rows.size()); ++i) {
    const KernelSummary::Row& row = summary.rows[i];
    fmt::print(stderr, "{:6.2f} % {:8} runs {:9.1f} us  {}\n", 100 * row.ms / summary.ms, row.runs,
               1e3 * row.ms / static_cast<double>(row.runs), Readable(row.name));
  }
}

void Print() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::lock_guard lock(mutex);
  const char* seconds = std::getenv("CAROLE_GPU_TIMES_SECONDS");
  const double window = seconds == nullptr ? 2 : std::atof(seconds);
  const auto window_ns = static_cast<uint64_t>(window * 1e9);
  const KernelSummary summary = Summarize(std::move(kernels), window_ns);
  if (summary.rows.empty()) return;
  fmt::print(stderr, "GPU idle: {:.2f} % of the last {:.0f} ms; longest gap {:.3f} ms\n",
             100 * summary.idle_share, summary.ms, summary.longest_gap_ms);
  PrintRows(summary);
  PrintRows(Summarize(std::move(host_copies), window_ns));
}

}  // namespace
}  // namespace carole::bench

extern "C" int InitializeInjection() {
  using namespace carole::bench;
  const bool good = cuptiActivityRegisterCallbacks(GiveBuffer, TakeBuffer) == CUPTI_SUCCESS &&
                    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS &&
                    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET) == CUPTI_SUCCESS &&
                    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) == CUPTI_SUCCESS;
  if (good) std::atexit(Print);
  return good ? 1 : 0;
}
