// Arithmetic on the arenas of weights, gradients and optimizer slots, outside of graphs. Arenas are
// in device memory. All functions enqueue their work in the order of the kernels. Only Hashes()
// waits for the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/backend/update.h"
#include "src/core/dtype.h"
#include "src/core/rng.h"

namespace carole {

// Hashes one value, given its bits and its index. A range of values is hashed as the sum of these
// hashes: it changes if one bit of a value changes, and it does not depend on the order of
// summation.
constexpr uint64_t HashOfValue(uint32_t bits, int64_t index) {
  return SplitMix64(static_cast<uint64_t>(index) << 32 | bits);
}

// Ranges are given by their address and their number of bytes, a multiple of 4; or by the type and
// number of their values. The type is kF32, or kF64 if the backend computes in it. Ranges do not
// overlap. Flags are in device memory; they are read when the device gets there.
class ArenaMath {
 public:
  virtual ~ArenaMath() = default;

  virtual void Copy(std::byte* to, const std::byte* from, size_t bytes) const = 0;
  virtual void Swap(std::byte* a, std::byte* b, size_t bytes) const = 0;
  // to = from, unless *flag is set.
  virtual void CopyUnless(const bool* flag, std::byte* to, const std::byte* from,
                          size_t bytes) const = 0;
  // to += from
  virtual void Add(DType dtype, std::byte* to, const std::byte* from, int64_t count) const = 0;
  // to *= factor. The factor is rounded to the type of the values.
  virtual void Scale(DType dtype, std::byte* to, int64_t count, double factor) const = 0;
  // Moving average: to -= one_minus_decay * (to - from), if *flag is set. The factor is rounded to
  // the type of the values.
  virtual void UpdateAverage(const bool* flag, DType dtype, std::byte* to, const std::byte* from,
                             int64_t count, double one_minus_decay) const = 0;
  // Returns for each range the sum of HashOfValue() over its values; indices start at 0 in each
  // range. Waits for the result.
  virtual std::vector<uint64_t> Hashes(const float* arena,
                                       const std::vector<Segment>& ranges) const = 0;
  // Makes an updater for this backend's memory. The memory in `job` must outlive it. Throws
  // InternalError if the backend does not support the job's types.
  virtual std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job) const = 0;
};

}  // namespace carole
