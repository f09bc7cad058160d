// The all-reduce algorithms, and how a rank selects one, and the type in which values travel.
// ALGORITHMS.md says what each costs. algorithms/algorithms.h has a row with the functions of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/core/dtype.h"

namespace carole::collectives {

enum class AllReduceAlgorithm : uint8_t {
  // The first all-reduce of each type and each power of two of its bytes measures the candidate
  // algorithms on all ranks. The fastest is kept, for later jobs too (engine/auto_choice.h).
  kAuto,
  kRing,
  kTree,
  kSharedMemory,
  kHierarchical,
  kHierarchicalTree,
  kMpi,
  kNccl,  // of device memory (device_all_reduce.h); cannot be selected
};

// In the order of the enum.
inline constexpr std::string_view kAllReduceNames[] = {
    "auto", "ring", "tree", "shared_memory", "hierarchical", "hierarchical_tree", "mpi", "nccl"};

constexpr std::string_view Name(AllReduceAlgorithm algorithm) {
  return kAllReduceNames[static_cast<size_t>(algorithm)];
}

// The names that ParseAllReduce() knows: "auto" to "mpi".
constexpr std::span<const std::string_view> SelectableAllReduceNames() {
  return std::span(kAllReduceNames).first(static_cast<size_t>(AllReduceAlgorithm::kNccl));
}

// Throws UsageError if no algorithm that can be selected has this name.
AllReduceAlgorithm ParseAllReduce(std::string_view name);

// The part of a communicator that selects the algorithm of its all-reduces, and their type on the
// wire.
class AllReduceSelection {
 public:
  virtual ~AllReduceSelection() = default;

  // Selects the algorithm from the next call on. All ranks must select the same one; the headers
  // are compared. Throws UsageError if it does not fit the hosts.
  virtual void SetAllReduce(AllReduceAlgorithm algorithm) = 0;
  virtual AllReduceAlgorithm all_reduce() const = 0;  // the selected algorithm
  // The algorithm for all-reduces of this many bytes; kAuto before the first of them.
  virtual AllReduceAlgorithm all_reduce_for(size_t bytes) const = 0;

  // Sets CommunicatorOptions::wire_dtype from the next call on: kF32 or kBF16. All ranks must set
  // the same; the headers are compared.
  virtual void SetWireDtype(DType dtype) = 0;
  // Returns false if the selected algorithm always sends fp32 between hosts.
  virtual bool SupportsBf16Wire() const = 0;
};

}  // namespace carole::collectives
