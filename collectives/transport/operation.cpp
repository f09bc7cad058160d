#include "collectives/transport/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace carole::collectives {
namespace {

bool Less(const OperationHeader& a, const OperationHeader& b) {
  return std::memcmp(&a, &b, sizeof(OperationHeader)) < 0;
}

}  // namespace

OperationHeader MakeHeader(Operation operation, DType dtype, uint64_t count, const Tag& tag) {
  OperationHeader header{.count = count,
                         .plan = tag.plan,
                         .step = tag.step,
                         .bucket = tag.bucket,
                         .operation = operation,
                         .dtype = dtype};
  std::memcpy(header.what, tag.what.data(), std::min(tag.what.size(), sizeof(header.what) - 1));
  return header;
}

std::string Describe(const OperationHeader& h) {
  std::string text(Name(h.operation));
  if (h.operation != Operation::kBarrier && h.operation != Operation::kShutdown) {
    text += fmt::format(" of {} {}", h.count, h.dtype == DType::kU8 ? "bytes" : Name(h.dtype));
  }
  if (h.what[0] != '\0') text += fmt::format(", tag {}", h.what);
  return text + fmt::format(", step {}, bucket {}", h.step, h.bucket);
}

HeaderRange MakeHeaderRange(const OperationHeader& header, int rank) {
  return {.low = header, .high = header, .low_rank = rank, .high_rank = rank};
}

void Merge(const HeaderRange& from, HeaderRange* into) {
  const auto smaller = [](const OperationHeader& a, int rank_a, const OperationHeader& b,
                          int rank_b) { return Less(a, b) || (!Less(b, a) && rank_a < rank_b); };
  if (smaller(from.low, from.low_rank, into->low, into->low_rank)) {
    into->low = from.low;
    into->low_rank = from.low_rank;
  }
  // Among equal headers the lowest rank is named here too, so the order of merging does not matter.
  const bool larger = Less(into->high, from.high);
  if (larger || (!Less(from.high, into->high) && from.high_rank < into->high_rank)) {
    into->high = from.high;
    into->high_rank = from.high_rank;
  }
}

}  // namespace carole::collectives
