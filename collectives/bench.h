// Benchmarks all-reduce and checks its sums, and benchmarks memcpy on the same machine at the same
// time for comparison. `carole bench allreduce` and `carole doctor` run it.
#pragma once

#include <span>
#include <vector>

#include "collectives/full_communicator.h"

namespace carole::collectives {

struct BenchOptions {
  std::vector<size_t> sizes = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};  // bytes
  int steps = 20;
  int warmup_steps = 3;
};

struct AllReduceSample {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kAuto;
  int ranks = 0;
  size_t bytes = 0;           // of each rank's range of fp32
  double time_us_median = 0;  // median over steps of the slowest rank's time in each step
  double bus_gb_per_s = 0;    // "bus bandwidth": AllReduceBusFactor(ranks) * bytes / time
  double copy_gb_per_s = 0;   // memcpy of `bytes` by all ranks at once: bytes per second and rank
};

// The memory to reduce, and to copy for comparison: an arena, or a device's memory. Calls may
// return before their work is done. Work is done in the order of the calls.
class BenchMemory {
 public:
  virtual ~BenchMemory() = default;
  virtual std::span<float> range() = 0;  // long enough for the largest size
  virtual void Copy(size_t bytes) = 0;   // copies from the range to a second buffer
  virtual void Finish() = 0;             // blocks until all work is done
  // Host memory of the same size as the range, in which values are written and compared. It is the
  // range itself if that is host memory.
  virtual std::span<float> host_range() { return range(); }
  // Upload() copies the first bytes of host_range() to the range, Download() copies them back. Both
  // return when the copy is done.
  virtual void Upload(size_t bytes) { static_cast<void>(bytes); }
  virtual void Download(size_t bytes) { static_cast<void>(bytes); }
};

// Measures all-reduces of each size, by the selected algorithm. Returns one sample for each size,
// the same on every rank. The range is in an arena if `memory` is null; else it is memory.range()
// and the reported algorithm is kNccl. Collective.
//
// Before each all-reduce every rank writes values of its own, whose sums are known
// (known_values.h). After it, outside of the measured time, every rank compares all sums. If one is
// wrong, all ranks throw CommError, which names the size, the rank and the first wrong element.
//
// The bandwidth of memory bounds algorithms that read and write each byte of each rank once: their
// bus_gb_per_s is at most 2(p-1)/p * copy_gb_per_s for p ranks.
std::vector<AllReduceSample> BenchAllReduce(FullCommunicator& communicator,
                                            const BenchOptions& options = {},
                                            BenchMemory* memory = nullptr);

}  // namespace carole::collectives
