// The part of the shared memory that does not change during a run. It describes the checkpoint that
// can be made of the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "src/train/survival/element_order.h"
#include "src/train/survival/state_record.h"

namespace carole::train {

// What all ranks know about the run.
struct RunFacts {
  std::string train_dir;
  std::string work_dir;  // for the state if train_dir cannot be written; "": none
  uint64_t run_id = 0;   // the same on all ranks, different for each run
  int rank = 0, size = 1;
  int keep_checkpoints = 5;
  std::map<std::string, std::string> attributes;  // of checkpoints
  std::string changing_attribute;                 // its values come from SurvivingState::KeepText()
  std::optional<io::KerasModel> keras;
};

// One tensor of a checkpoint and its position in the shared memory, in bytes.
struct ManifestTensor {
  std::string name;
  Shape tf_shape;
  bool trainable = false;
  bool is_slot = false;
  uint64_t position = 0;
  uint64_t saved_position = 0;  // of the saved running statistics; 0: it has none
  // Where the tensor is while weights and moving averages are swapped.
  uint64_t swapped_position = 0;
  uint64_t bytes = 0;        // of the tensor with its padding
  uint64_t order_index = 0;  // into Manifest::orders
};

struct Manifest {
  RunFacts facts;
  std::vector<ElementOrder> orders;
  std::vector<ManifestTensor> tensors;  // in the order of MakeSnapshot()
  // Slots that are single numbers. StateRecord has their values.
  std::vector<std::string> scalar_names;
};

std::string Serialize(const Manifest& manifest);
// Throws DataError if the bytes are no manifest.
Manifest ParseManifest(std::span<const std::byte> bytes);

// Describes the replica, whose arenas must lie in `memory`. `saved_statistics` is the copy of the
// running statistics; the `frozen` variables have none. Throws ConfigError if the replica cannot be
// described.
class SharedMemory;
Manifest MakeManifest(const ReplicaView& replica, const std::byte* saved_statistics,
                      std::span<const int> frozen, const RunFacts& facts,
                      const SharedMemory& memory);

// Makes the checkpoint of a whole state. It reads the elements from `memory` when it is written.
// `manifest` and `memory` must outlive it. Throws DataError if manifest or record do not fit the
// memory.
io::Checkpoint MakeCheckpoint(const Manifest& manifest, const StateRecord& record,
                              std::span<const std::byte> memory);

// Returns false if a trainable variable of the checkpoint is infinite or NaN.
bool VariablesAreFinite(const io::Checkpoint& checkpoint);

}  // namespace carole::train
