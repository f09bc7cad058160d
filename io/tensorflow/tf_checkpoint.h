// TensorFlow's checkpoints. V2: PREFIX.index, a table of where each tensor lies, and
// PREFIX.data-00000-of-00001, …; V1: one table with everything (formats: FORMATS.md).
//
// Reading expects hostile files: every size is checked against what the files hold before memory is
// taken, every checksum is verified. Tensors of strings and of more than Shape::kMaxRank dimensions
// are left out of names().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/weights_source.h"
#include "io/tensorflow/tf_types.h"
#include "src/core/files/bytes.h"

namespace carole::io {

// The prefix (V2) or file (V1) that `path` means: itself, PREFIX of PREFIX.index or any
// PREFIX.data-…, or of a folder what its file `checkpoint` names as the latest. nullopt when there
// is no checkpoint of TensorFlow.
std::optional<std::string> FindTfCheckpoint(const std::string& path);
// True for a table that may be a V1 checkpoint: by its last bytes.
bool IsTfTable(const std::string& path);

// OpenTfCheckpoint() takes what FindTfCheckpoint() gave. Throw DataError and DiskError. Fields of
// the result are as in io/checkpoint/weights_source.h.
std::unique_ptr<WeightsReader> OpenTfCheckpoint(const std::string& path);
std::unique_ptr<WeightsReader> OpenTfV1Checkpoint(const std::string& path);

// The same from any source of bytes. open_shard gives the file of a number below that of the
// header; it is asked when a tensor of that file is read.
using OpenShard = std::function<std::unique_ptr<Source>(int64_t shard, int64_t num_shards)>;
std::unique_ptr<WeightsReader> ParseTfCheckpoint(const std::string& name,
                                                 std::unique_ptr<Source> index,
                                                 OpenShard open_shard);
std::unique_ptr<WeightsReader> ParseTfV1Checkpoint(std::unique_ptr<Source> table);

// A tensor to be written; bytes are little-endian elements in row-major order.
struct TfTensor {
  std::string name;
  TfType type = TfType::kFloat;
  Shape shape;
  std::span<const char> bytes;
};

// Writes a V2 checkpoint of one data file, as tf.train.load_checkpoint reads it, and names it as
// the latest in the folder's file `checkpoint`. Each file appears whole or not at all, the index
// after the data. Throws DiskError; CAROLE_CHECKs that names differ.
void WriteTfCheckpoint(const std::string& prefix, std::vector<TfTensor> tensors);

}  // namespace carole::io
