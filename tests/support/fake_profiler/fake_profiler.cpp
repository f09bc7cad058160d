// A profiler as NVTX sees it: a library with one function, which sets the functions that ranges
// call. Each range becomes a line of a file: "step 3" for a range of any thread, "> input, step 3"
// for one of the current thread.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

std::mutex mutex;

void Write(const char* before, const char* name) {
  const std::lock_guard lock(mutex);
  static std::FILE* file = std::fopen(std::getenv("CAROLE_FAKE_PROFILER"), "a");
  std::fprintf(file, "%s%s\n", before, name);
  std::fflush(file);
}

int NVTX_API Push(const char* name) {
  Write("> ", name);
  return 0;
}
int NVTX_API Pop() { return 0; }
nvtxRangeId_t NVTX_API Start(const char* name) {
  Write("", name);
  return 1;
}
void NVTX_API End(nvtxRangeId_t) {}

template <typename Function>
void Set(NvtxFunctionTable table, NvtxCallbackIdCore id, Function* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  Set(table, NVTX_CBID_CORE_RangePushA, Push);
  Set(table, NVTX_CBID_CORE_RangePop, Pop);
  Set(table, NVTX_CBID_CORE_RangeStartA, Start);
  Set(table, NVTX_CBID_CORE_RangeEnd, End);
  return 1;
}
