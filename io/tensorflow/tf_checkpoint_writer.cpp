// Implements WriteTfCheckpoint() of tf_checkpoint.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include "io/tensorflow/leveldb_table.h"
#include "io/tensorflow/tf_checkpoint.h"
#include "io/tensorflow/tf_proto.h"
#include "src/core/check.h"
#include "src/core/files/crc32c.h"
#include "src/core/files/disk.h"

namespace carole::io {
namespace {

// Appends the tensors one after the other. Returns the index entry of each.
std::vector<TfBundleEntry> AppendData(Sink& file, std::span<const TfTensor> tensors) {
  std::vector<TfBundleEntry> entries;
  int64_t offset = 0;
  for (const TfTensor& tensor : tensors) {
    const std::span<const int64_t> dims = tensor.shape.dims();
    const auto bytes = static_cast<int64_t>(tensor.bytes.size());
    CAROLE_CHECK_EQ(bytes, tensor.shape.size() * static_cast<int64_t>(SizeOf(tensor.type)),
                    "bytes of {}", tensor.name);
    const std::string_view values(tensor.bytes.data(), tensor.bytes.size());
    entries.push_back({.type = tensor.type,
                       .dims = {dims.begin(), dims.end()},
                       .offset = offset,
                       .size = bytes,
                       .crc = MaskedCrc32c(values)});
    file.Append(values);
    offset += bytes;
  }
  return entries;
}

}  // namespace

void WriteTfCheckpoint(const std::string& prefix, std::vector<TfTensor> tensors) {
  std::ranges::sort(tensors, {}, &TfTensor::name);
  std::array<std::unique_ptr<Sink>, 2> files = {CreateFile(prefix + ".data-00000-of-00001"),
                                                CreateFile(prefix + std::string(kIndexSuffix))};
  const std::vector<TfBundleEntry> entries = AppendData(*files[0], tensors);
  LeveldbTableWriter table(*files[1]);
  table.Add("", SerializeBundleHeader({.num_shards = 1}));
  for (size_t i = 0; i < tensors.size(); ++i)
    table.Add(tensors[i].name, SerializeBundleEntry(entries[i]));
  table.Finish();
  CommitTogether(files);

  const std::filesystem::path path(prefix);
  const std::string name = path.filename().string();
  WriteWholeFile(
      (path.parent_path() / "checkpoint").string(),
      fmt::format("model_checkpoint_path: \"{0}\"\nall_model_checkpoint_paths: \"{0}\"\n", name));
}

}  // namespace carole::io
