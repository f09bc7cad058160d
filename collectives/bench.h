// Measures all-reduce beside the memory of the same machine at the same moment.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace carole::collectives {

struct BenchOptions {
  std::vector<size_t> sizes = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};  // bytes
  std::string algorithm = "auto";
  int steps = 20;
  int warmup_steps = 3;
};

struct AllReduceSample {
  std::string algorithm;
  int ranks = 0;
  size_t bytes = 0;           // of each rank's range, fp32
  double time_us_median = 0;  // over steps, of the slowest rank in each
  double bus_gb_per_s = 0;    // 2(p-1)/p * bytes / time: what each rank has to send and receive
  double copy_gb_per_s =
      0;  // memcpy of so many bytes by all ranks at once: bytes copied per second and rank
};

// What is summed, and copied to compare: a device's memory. Each call may return before its work is
// done, which comes in the order of the calls.
class BenchMemory {
 public:
  virtual ~BenchMemory() = default;
  virtual std::span<float> range() = 0;  // of the largest size
  virtual void Copy(size_t bytes) = 0;   // from the range to another place
  virtual void Finish() = 0;             // returns when all work is done
};

// One sample for each size; the same on every rank. Collective. The range lies in an arena, unless
// `memory` says otherwise: then "nccl" is the algorithm. Afterwards the communicator's algorithm is
// as it was. With 2(p-1)/p * copy_gb_per_s the memory bounds the bus number of an algorithm that
// reads and writes each byte of each rank once.
std::vector<AllReduceSample> BenchAllReduce(Communicator& communicator,
                                            const BenchOptions& options = {},
                                            BenchMemory* memory = nullptr);

}  // namespace carole::collectives
