// The header of a collective operation: how one rank describes the operation to the others.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/all_reduce_algorithm.h"
#include "collectives/communicator.h"
#include "collectives/diagnostics.h"
#include "src/core/dtype.h"

namespace carole::collectives {

// One operation as one rank sees it. Ranks compare headers byte by byte, so there is no padding and
// unused bytes are zero.
struct OperationHeader {
  uint64_t sequence = 0;  // number of the operation in its communicator
  uint64_t count = 0;     // elements of a reduction, else bytes
  // Arena number (high bits) and byte offset in the arena (low kOffsetBits), so that ranks reduce
  // the same range; kNotInArena for other memory.
  uint64_t arena_address = kNotInArena;
  uint64_t plan = 0;
  int64_t step = 0;
  int32_t bucket = 0;
  int32_t root = 0;
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kU8;
  AllReduceAlgorithm algorithm{};  // of an all-reduce; kAuto: to be measured
  DType wire = DType::kF32;        // type in which fp32 travels between hosts
  char what[28] = {};              // Tag::what, truncated

  static constexpr uint64_t kNotInArena = ~uint64_t{0};
  static constexpr int kOffsetBits = 48;
};
static_assert(sizeof(OperationHeader) == 80, "no padding: headers are compared as bytes");

OperationHeader MakeHeader(Operation operation, DType dtype, uint64_t count, const Tag& tag);

// "all_reduce of 1000 fp32, tag gradients, step 7, bucket 2"
std::string Describe(const OperationHeader& header);

// The smallest and the largest header among a group of ranks, in the order of memcmp, and a rank
// that has each. The headers of the group match if the two are equal. Merge() is associative and
// idempotent, so all ranks compute the same range and throw the same error.
struct HeaderRange {
  OperationHeader low, high;
  int32_t low_rank = 0, high_rank = 0;
};
HeaderRange MakeHeaderRange(const OperationHeader& header, int rank);
void Merge(const HeaderRange& from, HeaderRange* into);

}  // namespace carole::collectives
