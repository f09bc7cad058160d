// TensorFlow's first checkpoint format: a table whose first value is the table of contents. The
// other values are tensors or slices of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "io/tensorflow/leveldb_table.h"
#include "io/tensorflow/tf_checkpoint.h"
#include "io/tensorflow/tf_proto.h"
#include "io/tensorflow/tf_tensors.h"
#include "src/core/text/parse_number.h"

namespace carole::io {
namespace {

// Stands for the number of a shard in the name of the whole checkpoint.
constexpr std::string_view kAnyShard = "?????";

class V1Checkpoint final : public TfTensors {
 public:
  V1Checkpoint(const std::string& name, std::vector<std::unique_ptr<Source>> sources)
      : TfTensors(name), sources_(std::move(sources)) {
    Contents contents;
    for (size_t i = 0; i < sources_.size(); ++i) {
      tables_.emplace_back(*sources_[i]);
      AddContents(i, contents);
    }
    for (auto& [tensor, entry] : contents) {
      const auto& [type, dims, parts] = entry;
      Add(tensor, type, dims, parts);
    }
  }

 private:
  // A tensor as the tables of contents describe it. Several tables may have slices of one tensor.
  struct Entry {
    TfType type{};
    std::vector<int64_t> dims;
    std::vector<TfPart> parts;
  };
  using Contents = std::map<std::string, Entry>;

  // Reads the locations of parts in a table, and its table of contents.
  void AddContents(size_t table, Contents& contents) {
    std::vector<TfSavedMeta> listed;
    std::map<std::string, std::vector<size_t>> parts_of;  // tensor name -> indices in locations_
    const LeveldbTableReader& reader = tables_[table];
    for (size_t block = 0; block < reader.num_blocks(); ++block) {
      reader.VisitBlock(reader.ReadBlock(block), [&](std::string_view key, std::string_view value) {
        if (key.empty()) {
          listed = Parsed([&] { return ParseSavedMeta(value); });
          return;
        }
        TfSavedSlice saved = Parsed([&] { return ParseSavedSlice(value); });
        parts_of[std::string(saved.name)].push_back(locations_.size());
        locations_.push_back({.table = table,
                              .block = block,
                              .key = std::string(key),
                              .slice = std::move(saved.slice),
                              .bytes = saved.tensor.size()});
      });
    }
    if (listed.empty())
      Refuse("is not a TensorFlow checkpoint: it is a table that lists no tensors");
    for (TfSavedMeta& tensor : listed) {
      const auto [it, is_new] = contents.emplace(tensor.name, Entry{tensor.type, tensor.dims, {}});
      if (!is_new && (it->second.type != tensor.type || it->second.dims != tensor.dims))
        Refuse(fmt::format("{}: slices have different types or shapes", tensor.name));
      for (size_t index : parts_of[tensor.name])
        it->second.parts.push_back({.slice = locations_[index].slice, .index = index});
    }
  }

  // The place of a part in the files.
  struct Location {
    size_t table;
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
    const LeveldbTableReader& table = tables_[location.table];
    if (const std::pair place{location.table, location.block}; place != cached_block_) {
      cache_ = table.ReadBlock(location.block);
      cached_block_ = place;
    }
    bool found = false;
    table.VisitBlock(cache_, [&](std::string_view key, std::string_view value) {
      if (found || key != location.key) return;
      found = true;
      Parsed([&] { ReadTensorProto(ParseSavedSlice(value).tensor, type, out); });
    });
    if (!found) Refuse(fmt::format("{}: the file changed while it was read", name));
  }

  const std::vector<std::unique_ptr<Source>> sources_;
  std::vector<LeveldbTableReader> tables_;  // of the sources, in their order
  std::vector<Location> locations_;         // indexed by TfPart::index
  // The last block that was read, by table and number: it often holds the next part too.
  mutable std::pair<size_t, size_t> cached_block_{SIZE_MAX, SIZE_MAX};
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

std::string TfV1Shards::Path(int64_t shard) const {
  return fmt::format("{}-{:05}-of-{:05}", prefix, shard, count);
}

std::string TfV1Shards::Pattern() const {
  return fmt::format("{}-{}-of-{:05}", prefix, kAnyShard, count);
}

std::optional<TfV1Shards> ParseTfV1Shards(const std::string& path) {
  constexpr size_t kEndSize = std::string_view("-00000-of-00001").size();
  if (path.size() <= kEndSize) return std::nullopt;
  const std::string_view end = std::string_view(path).substr(path.size() - kEndSize);
  const std::string_view number = end.substr(1, 5), count = end.substr(10);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool is_shard = number == kAnyShard || std::ranges::all_of(number, is_digit);
  if (end.front() != '-' || end.substr(6, 4) != "-of-" || !is_shard ||
      !std::ranges::all_of(count, is_digit))
    return std::nullopt;
  const int64_t shards = ParseNumber<int64_t>(count).value_or(0);
  if (shards == 0) return std::nullopt;
  return TfV1Shards{.prefix = path.substr(0, path.size() - kEndSize), .count = shards};
}

std::unique_ptr<WeightsSource> ParseTfV1Checkpoint(const std::string& name,
                                                   std::vector<std::unique_ptr<Source>> tables) {
  return std::make_unique<V1Checkpoint>(name, std::move(tables));
}

std::unique_ptr<WeightsSource> OpenTfV1Checkpoint(const std::string& path) {
  std::vector<std::unique_ptr<Source>> tables;
  const auto shards = ParseTfV1Shards(path);
  if (shards && shards->count > 1) {
    for (int64_t shard = 0; shard < shards->count; ++shard)
      tables.push_back(OpenFile(shards->Path(shard)));
  } else {
    tables.push_back(OpenFile(path));
  }
  return ParseTfV1Checkpoint(path, std::move(tables));
}

}  // namespace carole::io
