// A collective operation as one rank describes it to the others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "src/core/dtype.h"

namespace carole::collectives {

enum class Operation : uint8_t {
  kAllReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kBarrier,
  kAllocate,
  kLeave
};
std::string_view Name(Operation operation);

// One operation as one rank sees it. Compared byte by byte between ranks (so: no padding,
// zero-filled).
struct Header {
  uint64_t sequence = 0;
  uint64_t count = 0;  // elements of sums, else bytes
  uint64_t place =
      kOutside;  // arena number and byte offset in it, so that ranks reduce the same range
  uint64_t plan = 0;
  int64_t step = 0;
  int32_t bucket = 0;
  int32_t root = 0;
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kU8;
  uint8_t algorithm = 0;  // row of algorithms.h, kAutoRow: to be measured
  DType wire = DType::kF32;
  char what[28] = {};  // cut if longer

  static constexpr uint64_t kOutside = ~uint64_t{0};
  static constexpr int kOffsetBits = 48;  // of place, the low ones
};
static_assert(sizeof(Header) == 80, "no padding: headers are compared as bytes");

Header MakeHeader(Operation operation, DType dtype, uint64_t count, const Tag& tag);

// "all_reduce of 1000 fp32, tag gradients, step 7, bucket 2"
std::string Describe(const Header& header);

// The smallest and the largest header of a group of ranks; the group agrees if these are the same.
// Merging is associative and idempotent, and all ranks arrive at the same verdict, hence throw the
// same error.
struct HeaderRange {
  Header low, high;
  int32_t low_rank = 0, high_rank = 0;
};
HeaderRange MakeHeaderRange(const Header& header, int rank);
void Merge(const HeaderRange& from, HeaderRange* into);

}  // namespace carole::collectives
