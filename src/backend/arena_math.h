// Arithmetic on arenas outside of graphs, for backends whose memory the host cannot touch. All of
// it runs in the order of the kernels, and nothing waits but for hashes. fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/backend/update.h"
#include "src/core/rng.h"

namespace carole {

// Of a value's bits and its place: another bit there makes another sum, in whatever order it is
// made.
constexpr uint64_t HashOfValue(uint32_t bits, int64_t place) {
  return SplitMix64(static_cast<uint64_t>(place) << 32 | bits);
}

class ArenaMath {
 public:
  virtual ~ArenaMath() = default;

  virtual void Copy(std::byte* to, const std::byte* from, size_t bytes) const = 0;
  // a and b do not overlap.
  virtual void Swap(float* a, float* b, int64_t count) const = 0;
  // to += from
  virtual void Add(float* to, const float* from, int64_t count) const = 0;
  // These look at a flag in the backend's memory.
  //   to = from unless it is set
  virtual void CopyUnless(const bool* flag, float* to, const float* from, int64_t count) const = 0;
  //   to -= rest * (to - from) if it is set
  virtual void UpdateAverage(const bool* flag, float* to, const float* from, int64_t count,
                             float rest) const = 0;
  // to *= factor
  virtual void Scale(float* to, int64_t count, float factor) const = 0;
  // Of each range the sum of HashOfValue() over its values. Waits for them.
  virtual std::vector<uint64_t> Hashes(const float* arena,
                                       const std::vector<Segment>& ranges) const = 0;
  // The job's memory outlives the updater.
  virtual std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job) const = 0;

  // Where all of it runs, for others that work on the memory: CUDA's number of the device, and the
  // stream (a cudaStream_t).
  virtual int device() const = 0;
  virtual void* stream() const = 0;
};

}  // namespace carole
