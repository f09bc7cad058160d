// TensorFlow's first checkpoint format: a table whose first value is the table of contents. The
// other values are tensors or slices of them.
#include <fmt/format.h>

#include <array>
#include <map>
#include <utility>

#include "io/tensorflow/leveldb_table.h"
#include "io/tensorflow/tf_checkpoint.h"
#include "io/tensorflow/tf_proto.h"
#include "io/tensorflow/tf_tensors.h"

namespace carole::io {
namespace {

class V1Checkpoint final : public TfTensors {
 public:
  explicit V1Checkpoint(std::unique_ptr<Source> source)
      : TfTensors(source->name()), source_(std::move(source)), table_(*source_) {
    std::vector<TfSavedMeta> contents;
    std::map<std::string, std::vector<size_t>> parts_of;  // tensor name -> indices in locations_
    for (size_t block = 0; block < table_.num_blocks(); ++block) {
      table_.VisitBlock(table_.ReadBlock(block), [&](std::string_view key, std::string_view value) {
        if (key.empty()) {
          contents = Parsed([&] { return ParseSavedMeta(value); });
          return;
        }
        TfSavedSlice saved = Parsed([&] { return ParseSavedSlice(value); });
        parts_of[std::string(saved.name)].push_back(locations_.size());
        locations_.push_back({.block = block,
                              .key = std::string(key),
                              .slice = std::move(saved.slice),
                              .bytes = saved.tensor.size()});
      });
    }
    if (contents.empty())
      Refuse("is not a TensorFlow checkpoint: it is a table that lists no tensors");
    for (const TfSavedMeta& tensor : contents) {
      std::vector<TfPart> parts;
      for (size_t index : parts_of[tensor.name])
        parts.push_back({.slice = locations_[index].slice, .index = index});
      Add(tensor.name, tensor.type, tensor.dims, std::move(parts));
    }
  }

 private:
  // The place of a part in the file.
  struct Location {
    size_t block;
    std::string key;
    TfSlice slice;
    uint64_t bytes;  // size of the TensorProto that holds the values
  };

  // A value takes at least one byte.
  void CheckPartFits(const std::string& name, TfType, const TfPart& part,
                     uint64_t elements) const override {
    const uint64_t bytes = locations_[part.index].bytes;
    if (elements > bytes)
      Refuse(fmt::format("{}: too few bytes: got {} for {} elements", name, bytes, elements));
  }

  void ReadPart(const std::string& name, TfType type, const TfPart& part,
                std::span<char> out) const override {
    const Location& location = locations_[part.index];
    if (location.block != cached_block_) {
      cache_ = table_.ReadBlock(location.block);
      cached_block_ = location.block;
    }
    bool found = false;
    table_.VisitBlock(cache_, [&](std::string_view key, std::string_view value) {
      if (found || key != location.key) return;
      found = true;
      Parsed([&] { ReadTensorProto(ParseSavedSlice(value).tensor, type, out); });
    });
    if (!found) Refuse(fmt::format("{}: the file changed while it was read", name));
  }

  const std::unique_ptr<Source> source_;
  const LeveldbTableReader table_;
  std::vector<Location> locations_;         // indexed by TfPart::index
  mutable size_t cached_block_ = SIZE_MAX;  // the last block read: it often holds the next part too
  mutable std::string cache_;
};

}  // namespace

bool IsLeveldbTable(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const std::unique_ptr<Source> file = OpenFile(path);
  const uint64_t size = file->size().value_or(0);
  std::array<char, kTableMagic.size()> end{};
  return size >= end.size() && file->ReadAt(size - end.size(), end) == end.size() &&
         std::string_view(end.data(), end.size()) == kTableMagic;
}

std::unique_ptr<WeightsSource> ParseTfV1Checkpoint(std::unique_ptr<Source> table) {
  return std::make_unique<V1Checkpoint>(std::move(table));
}

std::unique_ptr<WeightsSource> OpenTfV1Checkpoint(const std::string& path) {
  return ParseTfV1Checkpoint(OpenFile(path));
}

}  // namespace carole::io
