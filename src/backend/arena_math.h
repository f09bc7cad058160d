// Arithmetic on arenas outside of graphs, for backends whose memory the host cannot touch. All of
// it runs in the order of the kernels, and nothing waits. fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/backend/update.h"

namespace carole {

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
  virtual void Approach(const bool* flag, float* to, const float* from, int64_t count,
                        float rest) const = 0;
  // to *= factor
  virtual void Scale(float* to, int64_t count, float factor) const = 0;
  // The job's memory outlives the updater.
  virtual std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job) const = 0;

  // Where all of it runs, for others that work on the memory: CUDA's number of the device, and the
  // stream (a cudaStream_t).
  virtual int device() const = 0;
  virtual void* stream() const = 0;
};

}  // namespace carole
