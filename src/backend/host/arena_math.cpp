#include "src/backend/host/arena_math.h"

#include <algorithm>
#include <cstring>

#include "src/backend/host/updater.h"
#include "src/backend/host/vector_math.h"
#include "src/core/check.h"

namespace carole::host {
namespace {

template <typename T>
T* As(std::byte* memory) {
  return reinterpret_cast<T*>(memory);
}
template <typename T>
const T* As(const std::byte* memory) {
  return reinterpret_cast<const T*>(memory);
}

// Calls use(T()) with the type of the values.
template <typename Use>
void WithType(DType dtype, const Use& use) {
  if (dtype == DType::kF64) return use(double());
  CAROLE_CHECK(dtype == DType::kF32, "an arena of {}", Name(dtype));
  use(float());
}

class HostArenaMath : public ArenaMath {
 public:
  explicit HostArenaMath(int threads) : threads_(threads) {}

  void Copy(std::byte* to, const std::byte* from, size_t bytes) const override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void Swap(std::byte* a, std::byte* b, size_t bytes) const override {
    std::swap_ranges(a, a + bytes, b);
  }
  void CopyUnless(const bool* flag, std::byte* to, const std::byte* from,
                  size_t bytes) const override {
    if (!*flag) Copy(to, from, bytes);
  }
  void Add(DType dtype, std::byte* to, const std::byte* from, int64_t count) const override {
    WithType(dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEachBlock(count, [&](int64_t i, int64_t n) { AddTo(As<T>(to) + i, As<T>(from) + i, n); });
    });
  }
  void Scale(DType dtype, std::byte* to, int64_t count, double factor) const override {
    WithType(dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEachBlock(
          count, [&](int64_t i, int64_t n) { ScaleBy(static_cast<T>(factor), As<T>(to) + i, n); });
    });
  }
  void UpdateAverage(const bool* flag, DType dtype, std::byte* to, const std::byte* from,
                     int64_t count, double one_minus_decay) const override {
    if (!*flag) return;
    WithType(dtype, [&](auto zero) {
      using T = decltype(zero);
      ForEachBlock(count, [&](int64_t i, int64_t n) {
        MoveAverage(static_cast<T>(one_minus_decay), As<T>(to) + i, As<T>(from) + i, n);
      });
    });
  }
  std::vector<uint64_t> Hashes(const float* arena,
                               const std::vector<Segment>& ranges) const override {
    std::vector<uint64_t> hashes(ranges.size());
    const auto num_ranges = static_cast<int64_t>(ranges.size());
#pragma omp parallel for num_threads(threads_) schedule(dynamic) if (num_ranges > 1)
    for (int64_t r = 0; r < num_ranges; ++r)
      hashes[r] = SumOfHashes(arena + ranges[r].begin, ranges[r].end - ranges[r].begin);
    return hashes;
  }
  std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job) const override {
    return host::MakeUpdater(job, threads_);
  }

 private:
  // Calls work(index of the first value, number of values) for blocks of `count` values. A block
  // and its operand fit into the L2 cache of a core.
  template <typename Work>
  void ForEachBlock(int64_t count, const Work& work) const {
    constexpr int64_t kBlock = 1 << 14;
#pragma omp parallel for num_threads(threads_) schedule(static) if (count > 4 * kBlock)
    for (int64_t i = 0; i < count; i += kBlock) work(i, std::min(kBlock, count - i));
  }

  const int threads_;
};

}  // namespace

std::unique_ptr<ArenaMath> MakeArenaMath(int threads) {
  return std::make_unique<HostArenaMath>(threads);
}

const ArenaMath& SerialArenaMath() {
  static const HostArenaMath math(1);
  return math;
}

}  // namespace carole::host
