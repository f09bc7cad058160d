// Checkpoints: the whole state of a run in one HDF5 file, `model.ckpt-<step>.h5`.
//
// The weights lie in Keras's legacy layout, so h5py and keras.Model.load_weights read them; the
// group `carole` adds exact names, optimizer slots and where the run stands (CHECKPOINT_FORMAT.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/keras_layout.h"
#include "src/core/shape.h"

namespace carole::io {

// A variable or slot. Sizes and elements in TensorFlow's order: filters (R,S,C,K), matrices (C,K).
struct CheckpointVariable {
  std::string name;  // of TF-Slim: "resnet_v1_50/conv1/weights"; of a slot: "VAR/Momentum"
  Shape shape;
  std::vector<float> data;  // shape.size() elements; empty when only the header was read
  bool trainable = false;   // false for slots and moving statistics
  // In place of data: gives the elements each time that they are needed, and none are kept. For
  // writing where the memory has no room for a copy of all.
  std::function<std::vector<float>()> read = nullptr;
};

inline constexpr int64_t kMaxStep = int64_t{1} << 62;  // that a run can be at

struct Checkpoint {
  std::vector<CheckpointVariable> variables;  // in creation order
  std::vector<CheckpointVariable> slots;
  int64_t step = 0;      // optimizer updates done
  int64_t epoch = 0;     // where in the data the run stands:
  int64_t position = 0;  // samples of that epoch that all ranks together have seen
  uint64_t seed = 0;
  std::map<std::string, std::string> attributes;  // net, flags, program version, …: name -> text
  uint64_t digest = 0;                            // of all the above; set by reading and writing
  std::optional<KerasModel> keras;                // for Keras alone: ReadCheckpoint() leaves it out
};

// What a net expects to find.
struct VariableSpec {
  std::string name;
  Shape shape;
};

// CRC-64/XZ over names, sizes, elements, place and attributes; the order is in
// CHECKPOINT_FORMAT.md.
uint64_t ComputeDigest(const Checkpoint& checkpoint);

// Writes to a temporary name in the same folder and renames when all is on the disk: `path` is the
// whole new file or what it was before. Sets checkpoint.digest. Throws DiskError; leaves no
// temporary then. Calls what variables have to read() twice.
void WriteCheckpoint(Checkpoint& checkpoint, const std::string& path);

// A checkpoint's KerasModel::training; empty where it has none. Throws DiskError, DataError.
std::string ReadKerasTraining(const std::string& path);

// True for an HDF5 file that may be one of this program's; false for any other, such as Keras's.
// Throws DiskError, and DataError for a damaged HDF5 file.
bool IsCheckpoint(const std::string& path);

// Reads all and verifies the digest. Throws DataError when the file is damaged, truncated or none
// of ours, DiskError when it cannot be read.
Checkpoint ReadCheckpoint(const std::string& path);

// The same without data: names, sizes, place, attributes. The digest is the stored one, not
// verified.
Checkpoint ReadCheckpointHeader(const std::string& path);

// Throws DataError that names the first variables that are missing, unexpected or of another shape.
// path is for the text.
void CheckCompatible(const Checkpoint& checkpoint, std::span<const VariableSpec> expected,
                     const std::string& path);

}  // namespace carole::io
