// Checkpoints: the whole state of a run in one HDF5 file, `model.ckpt-<step>.h5`.
//
// The weights are stored in Keras's legacy layout, so h5py and keras.Model.load_weights can read
// them. The group `carole` adds the exact names, the optimizer slots and the progress of the run.
// CHECKPOINT_FORMAT.md describes the file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/keras_layout.h"
#include "src/core/shape.h"

namespace carole::io {

// A variable of the net, or a slot of its optimizer. Shape and elements are in TensorFlow's order:
// filters (R,S,C,K), matrices (C,K).
struct CheckpointVariable {
  // TF-Slim's name, such as "resnet_v1_50/conv1/weights". A slot is called "VARIABLE/Momentum".
  std::string name;
  Shape shape;
  std::vector<float> data;  // shape.size() elements; empty if only the header was read
  bool trainable = false;   // false for slots and moving statistics
  // Replaces `data`: returns the elements each time that they are needed. Used if there is no
  // memory for a copy of all variables.
  std::function<std::vector<float>()> read = nullptr;
};

inline constexpr int64_t kMaxStep = int64_t{1} << 62;  // the largest step of a run

// The state of a run, as one file stores it.
struct Checkpoint {
  std::vector<CheckpointVariable> variables;  // in creation order
  std::vector<CheckpointVariable> slots;
  int64_t step = 0;      // optimizer updates done
  int64_t epoch = 0;     // progress through the data: the current epoch,
  int64_t position = 0;  // and how many of its samples all ranks together have seen
  uint64_t seed = 0;
  std::map<std::string, std::string> attributes;  // net, flags, program version, …: name -> text
  uint64_t digest = 0;                            // over all the above; set by reading and writing
  std::optional<KerasModel> keras;                // for Keras only; ReadCheckpoint() ignores it
};

// Name and shape of a variable that a net needs.
struct VariableSpec {
  std::string name;
  Shape shape;
};

// Computes the CRC-64/XZ over names, shapes, elements, progress and attributes. The order is in
// CHECKPOINT_FORMAT.md.
uint64_t ComputeDigest(const Checkpoint& checkpoint);

// Writes the file atomically: writes to a temporary name in the same folder, syncs and renames it.
// So `path` is the complete new file, or what it was before. Sets checkpoint.digest. Calls
// CheckpointVariable::read twice. Throws DiskError after removing the temporary file.
void WriteCheckpoint(Checkpoint& checkpoint, const std::string& path);

// Reads KerasModel::training_config of a checkpoint; empty if it has none. Throws DiskError or
// DataError.
std::string ReadKerasTrainingConfig(const std::string& path);

// True for an HDF5 file with the group `carole`; false for other HDF5 files, such as Keras's.
// Throws DiskError if the file cannot be read, DataError if it is not HDF5 or damaged.
bool IsCheckpoint(const std::string& path);

// Where the elements of a checkpoint are after it was read: in `data`, or in the file, which `read`
// then reads again. That needs memory for the largest variable only.
enum class ElementsIn { kMemory, kFile };

// Reads the whole checkpoint and verifies its digest. Throws DataError if the file is damaged,
// truncated or not a checkpoint of carole, DiskError if it cannot be read.
Checkpoint ReadCheckpoint(const std::string& path, ElementsIn place = ElementsIn::kMemory);

// Reads everything except the elements: names, shapes, progress, attributes. The digest is the
// stored one and is not verified. Throws as ReadCheckpoint().
Checkpoint ReadCheckpointHeader(const std::string& path);

// Compares the variables of a checkpoint with those of a net. Throws DataError, which names the
// first variables that are missing, unexpected or of another shape. `path` is for the text only.
// Variables for which may_be_unused() is true are never unexpected.
void CheckCompatible(const Checkpoint& checkpoint, std::span<const VariableSpec> expected,
                     const std::string& path,
                     bool (*may_be_unused)(std::string_view name) = nullptr);

}  // namespace carole::io
