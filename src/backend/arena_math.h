// Arithmetic on the fp32 arenas of weights, gradients and optimizer slots, outside of graphs. It is
// for backends whose memory the host cannot access. All functions enqueue their work in the order
// of the kernels. Only Hashes() waits for the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/backend/update.h"
#include "src/core/rng.h"

namespace carole {

// Hashes one value, given its bits and its index. A range of values is hashed as the sum of these
// hashes: it changes if one bit of a value changes, and it does not depend on the order of
// summation.
constexpr uint64_t HashOfValue(uint32_t bits, int64_t index) {
  return SplitMix64(static_cast<uint64_t>(index) << 32 | bits);
}

class ArenaMath {
 public:
  virtual ~ArenaMath() = default;

  virtual void Copy(std::byte* to, const std::byte* from, size_t bytes) const = 0;
  // a and b do not overlap.
  virtual void Swap(float* a, float* b, int64_t count) const = 0;
  // to += from
  virtual void Add(float* to, const float* from, int64_t count) const = 0;
  // to = from, unless *flag is set when the device gets there. `flag` is in device memory.
  virtual void CopyUnless(const bool* flag, float* to, const float* from, int64_t count) const = 0;
  // Moving average: to -= one_minus_decay * (to - from), if *flag is set when the device gets
  // there. `flag` is in device memory.
  virtual void UpdateAverage(const bool* flag, float* to, const float* from, int64_t count,
                             float one_minus_decay) const = 0;
  // to *= factor
  virtual void Scale(float* to, int64_t count, float factor) const = 0;
  // Returns for each range the sum of HashOfValue() over its values; indices start at 0 in each
  // range. Waits for the result.
  virtual std::vector<uint64_t> Hashes(const float* arena,
                                       const std::vector<Segment>& ranges) const = 0;
  // Makes an updater for this backend's memory. The memory in `job` must outlive it.
  virtual std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job) const = 0;

  // The CUDA device number and the stream (a cudaStream_t) on which everything above runs, for
  // other libraries that work on the same memory.
  virtual int device() const = 0;
  virtual void* stream() const = 0;
};

}  // namespace carole
