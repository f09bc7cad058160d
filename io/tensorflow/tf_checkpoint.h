// Reads and writes TensorFlow's checkpoints. FORMATS.md describes the formats.
//   V2: PREFIX.index, a table with the location of each tensor, and PREFIX.data-00000-of-00001, …
//   V1: one table that holds everything.
//
// Files that are read may be hostile. Every size is checked against the size of the files before
// memory is allocated, and every checksum is verified. names() lists floating-point tensors of up
// to Shape::kMaxRank dimensions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/weights_source.h"
#include "io/tensorflow/tf_types.h"
#include "src/core/files/bytes.h"

namespace carole::io {

inline constexpr std::string_view kIndexSuffix = ".index";  // of the index of a V2 checkpoint

// Returns the prefix (V2) or file (V1) that `path` means, or nullopt if there is no TensorFlow
// checkpoint. `path` may be a prefix, PREFIX.index, PREFIX.meta, any PREFIX.data-…, a V1 file, or a
// folder or its file `checkpoint`, which names the latest checkpoint. A V1 checkpoint in several
// files is PREFIX-?????-of-0000N. Throws DataError if the file `checkpoint` is malformed or what it
// names is missing, DiskError if it cannot be read.
std::optional<std::string> FindTfCheckpoint(const std::string& path);
// Returns the prefix of a V2 checkpoint, the one with the highest step, in a folder without a file
// `checkpoint`. FindTfCheckpoint() does not find it by the folder.
std::optional<std::string> FindUnnamedTfCheckpoint(const std::string& folder);
// True if the file ends as a LevelDB table does, so that it may be a V1 checkpoint.
bool IsLeveldbTable(const std::string& path);

// The files of a V1 checkpoint that is divided: PREFIX-00000-of-0000N, PREFIX-00001-of-0000N, ….
struct TfV1Shards {
  std::string prefix;
  int64_t count = 1;

  std::string Path(int64_t shard) const;
  std::string Pattern() const;  // PREFIX-?????-of-0000N
};
// Parses the name of one of these files, or the pattern; nullopt for other names.
std::optional<TfV1Shards> ParseTfV1Shards(const std::string& path);

// True if WeightsSource::step() reads the training step from a tensor of this name.
bool IsGlobalStep(std::string_view name);

// Opens a checkpoint. OpenTfCheckpoint() takes a result of FindTfCheckpoint(). Both throw DataError
// if the file is damaged, DiskError if it cannot be read.
std::unique_ptr<WeightsSource> OpenTfCheckpoint(const std::string& path);
std::unique_ptr<WeightsSource> OpenTfV1Checkpoint(const std::string& path);

// The same from any source of bytes. `open_shard` opens the data file number `shard`, which is less
// than `num_shards`. It is called when the file is first needed.
using OpenShard = std::function<std::unique_ptr<Source>(int64_t shard, int64_t num_shards)>;
std::unique_ptr<WeightsSource> ParseTfCheckpoint(const std::string& name,
                                                 std::unique_ptr<Source> index,
                                                 OpenShard open_shard);
std::unique_ptr<WeightsSource> ParseTfV1Checkpoint(const std::string& name,
                                                   std::vector<std::unique_ptr<Source>> tables);

// A tensor to be written. `bytes` holds its little-endian elements in row-major order.
struct TfTensor {
  std::string name;
  TfType type = TfType::kFloat;
  Shape shape;
  std::span<const char> bytes;
};

// Writes a V2 checkpoint with one data file, which tf.train.load_checkpoint can read. Then names it
// as the latest in the folder's file `checkpoint`. Each file is written atomically, the index after
// the data. Names must be unique. Throws DiskError.
void WriteTfCheckpoint(const std::string& prefix, std::vector<TfTensor> tensors);

}  // namespace carole::io
