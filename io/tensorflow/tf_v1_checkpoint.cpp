// TensorFlow's first checkpoint format: a table whose first value is the table of contents, and
// whose others are tensors or parts of them.
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
    std::map<std::string, std::vector<size_t>> places_of;  // by the tensor's name
    for (size_t block = 0; block < table_.num_blocks(); ++block) {
      table_.VisitBlock(table_.ReadBlock(block), [&](std::string_view key, std::string_view value) {
        if (key.empty()) {
          contents = Parsed([&] { return ParseSavedMeta(value); });
          return;
        }
        TfSavedSlice saved = Parsed([&] { return ParseSavedSlice(value); });
        places_of[std::string(saved.name)].push_back(places_.size());
        places_.push_back({.block = block,
                           .key = std::string(key),
                           .slice = std::move(saved.slice),
                           .bytes = saved.tensor.size()});
      });
    }
    if (contents.empty()) Refuse("is a table, but lists no tensors: no checkpoint of TensorFlow");
    for (const TfSavedMeta& tensor : contents) {
      std::vector<TfPart> parts;
      for (size_t place : places_of[tensor.name])
        parts.push_back({.slice = places_[place].slice, .place = place});
      Add(tensor.name, tensor.type, tensor.dims, std::move(parts));
    }
  }

 private:
  struct Place {
    size_t block;
    std::string key;
    TfSlice slice;
    uint64_t bytes;  // of the message that holds the values
  };

  // A number takes a byte or more.
  void CheckRoom(const std::string& name, TfType, const TfPart& part,
                 uint64_t elements) const override {
    const uint64_t bytes = places_[part.place].bytes;
    if (elements > bytes)
      Refuse(fmt::format("{}: {} elements in {} bytes: cannot be", name, elements, bytes));
  }

  void ReadPart(const std::string& name, TfType type, const TfPart& part,
                std::span<char> out) const override {
    const Place& place = places_[part.place];
    if (place.block != cached_block_) {
      cache_ = table_.ReadBlock(place.block);
      cached_block_ = place.block;
    }
    bool found = false;
    table_.VisitBlock(cache_, [&](std::string_view key, std::string_view value) {
      if (found || key != place.key) return;
      found = true;
      Parsed([&] { ReadTensorProto(ParseSavedSlice(value).tensor, type, out); });
    });
    if (!found) Refuse(fmt::format("{}: the file changed while it was read", name));
  }

  const std::unique_ptr<Source> source_;
  const LeveldbTableReader table_;
  std::vector<Place> places_;
  mutable size_t cached_block_ = SIZE_MAX;  // neighbors lie in one block
  mutable std::string cache_;
};

}  // namespace

bool IsTfTable(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const std::unique_ptr<Source> file = OpenFile(path);
  const uint64_t size = file->size().value_or(0);
  std::array<char, kTableMagic.size()> end{};
  return size >= end.size() && file->ReadAt(size - end.size(), end) == end.size() &&
         std::string_view(end.data(), end.size()) == kTableMagic;
}

std::unique_ptr<WeightsReader> ParseTfV1Checkpoint(std::unique_ptr<Source> table) {
  return std::make_unique<V1Checkpoint>(std::move(table));
}

std::unique_ptr<WeightsReader> OpenTfV1Checkpoint(const std::string& path) {
  return ParseTfV1Checkpoint(OpenFile(path));
}

}  // namespace carole::io
