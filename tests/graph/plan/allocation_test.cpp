// Checks that a step allocates no memory: all is allocated when an Executable is made and bound.
// This file replaces the C library's allocation functions for the whole test program, to count
// their calls. `new` and oneDNN's allocator call them too.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "nets/nets.h"
#include "src/core/simd.h"
#include "src/graph/autodiff.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/plan/executable.h"
#include "src/graph/rewrites.h"
#include "tests/support/sketch.h"

#if defined(__has_feature)  // clang
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAROLE_COUNTS_ALLOCATIONS 0
#endif
#endif
#if defined(CAROLE_COUNTS_ALLOCATIONS)
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define CAROLE_COUNTS_ALLOCATIONS 0  // sanitizers have their own allocator
#else
#define CAROLE_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> calls{0};
std::atomic<size_t> largest{0};

[[maybe_unused]] void Count(size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  calls.fetch_add(1, std::memory_order_relaxed);
  size_t seen = largest.load(std::memory_order_relaxed);
  while (bytes > seen && !largest.compare_exchange_weak(seen, bytes)) {
  }
}

}  // namespace

#if CAROLE_COUNTS_ALLOCATIONS
// NOLINTBEGIN(bugprone-reserved-identifier): the C library's own names
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* p, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(size_t bytes) {
  Count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  Count(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* p, size_t bytes) {
  Count(bytes);
  return __libc_realloc(p, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  Count(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** p, size_t alignment, size_t bytes) {
  *p = memalign(alignment, bytes);
  return *p == nullptr ? ENOMEM : 0;
}
}
#endif

namespace carole {
namespace {

// Counts the allocations of the second and third step.
void CountSteps(Graph& graph, const Backend& backend) {
  Fuse(graph, backend);
  Differentiate(graph);
  Executable executable(Compile(graph, backend));
  const auto store = executable.MakeStore();
  store->Initialize(1);
  executable.Bind(*store);
  int ready = 0;
  const Executable::GradientReady on_ready = [&](int) { ++ready; };
  executable.Run({}, on_ready);
  calls = 0;
  largest = 0;
  counting = true;
  executable.Run({.step = 1}, on_ready);
  executable.Run({.step = 2}, on_ready);
  counting = false;
  EXPECT_EQ(ready, 3 * static_cast<int>(store->ready_order().size()));
}

nets::Model MakeResnet() {
  return nets::BuildModel(nets::FindNet("resnet_v1_50"),
                          {.batch_size = 2, .image_size = 64, .num_classes = 10, .training = true});
}

TEST(Allocation, CounterSeesNewAndAlignedAlloc) {
  if (!CAROLE_COUNTS_ALLOCATIONS)
    GTEST_SKIP() << "skipped: a sanitizer or another C library allocates";
  calls = 0;
  largest = 0;
  counting = true;
  delete new volatile int(1);
  std::free(std::aligned_alloc(64, 6400));
  counting = false;
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(largest, 6400u);
}

// Whenever oneDNN runs a primitive, it allocates small lists of arguments, which we cannot prevent:
// about ten for each primitive of ResNet-50. Its scratchpad and all our memory are in the arena. On
// CPUs without AVX-512, it computes some convolutions by its GEMM, which allocates its buffer in
// each call.
TEST(Allocation, OneDnnStepsAllocateSmallListsOnly) {
  if (!CAROLE_COUNTS_ALLOCATIONS)
    GTEST_SKIP() << "skipped: a sanitizer or another C library allocates";
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  const nets::Model model = MakeResnet();
  CountSteps(*model.graph, *MakeOneDnnBackend(1));
  std::printf("two steps: %lld allocations, the largest of %zu bytes\n",
              static_cast<long long>(calls), largest.load());
  const bool has_gemm_buffers = SimdLevel() < 4;
  EXPECT_LT(largest, has_gemm_buffers ? size_t{4} << 20 : 4096);
  EXPECT_LT(calls, has_gemm_buffers ? 2 * 2500 : 2 * 2000);
}

// Without oneDNN's primitives, only the OpenMP runtime allocates: 1.5 KB for its description of a
// team, in each parallel region of one thread. A step of this test has 20 of these regions.
TEST(Allocation, OurKernelsAllocateNothingThemselves) {
  if (!CAROLE_COUNTS_ALLOCATIONS)
    GTEST_SKIP() << "skipped: a sanitizer or another C library allocates";
  for (const BackendEntry& entry : kBackends) {
    if (entry.name == "onednn" && !OneDnnAvailable()) continue;
    for (const int threads : {1, 2}) {
      Graph g;
      testing::Sketch s(g);
      const ValueId x = g.AddInput("x", {64, 3}, DType::kF32);
      const ValueId y = s.Relu(s.Add(s.BatchNorm(x, "norm"), x));
      s.Loss(s.Relu(ops::Dropout(g, s.BatchNorm(y, "next"), {}), 6));
      CountSteps(g, *entry.make(threads));
      EXPECT_LE(calls, 2 * 20) << entry.name << ", threads " << threads;
      EXPECT_LT(largest, 4096u);
    }
  }
}

}  // namespace
}  // namespace carole
