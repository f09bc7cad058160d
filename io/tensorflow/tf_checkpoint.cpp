#include "io/tensorflow/tf_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "io/tensorflow/leveldb_table.h"
#include "io/tensorflow/tf_proto.h"
#include "io/tensorflow/tf_tensors.h"
#include "src/core/error.h"
#include "src/core/files/crc32c.h"

namespace carole::io {
namespace {

constexpr int64_t kMaxShards = 100'000;
constexpr char kObjectGraph[] = "_CHECKPOINTABLE_OBJECT_GRAPH";

class V2Checkpoint final : public TfTensors {
 public:
  V2Checkpoint(const std::string& name, std::unique_ptr<Source> index, OpenShard open_shard)
      : TfTensors(name), index_(std::move(index)), open_shard_(std::move(open_shard)) {
    std::map<std::string, TfBundleEntry> entries;
    LeveldbTableReader(*index_).Visit([&](std::string_view key, std::string_view value) {
      if (key.empty()) return ReadHeader(value);
      entries.emplace(key, Parsed([&] { return ParseBundleEntry(value); }));
    });
    if (num_shards_ == 0) Refuse("the index has no header");
    for (auto& [key, entry] : entries) {
      if (key.front() != '\0') AddTensor(key, entry, entries);  // other keys are slices of tensors
    }
    if (const auto graph = entries.find(kObjectGraph);
        graph != entries.end() && graph->second.type == TfType::kString)
      object_graph_ = graph->second;
  }

  std::string variable_name(const std::string& name) const override {
    if (object_graph_) {
      const std::string graph = ReadString(kObjectGraph, *object_graph_);
      for (TfVariableName& variable : Parsed([&] { return ParseObjectGraph(graph); }))
        variable_names_[std::move(variable.key)] = std::move(variable.name);
      object_graph_.reset();
    }
    const auto found = variable_names_.find(name);
    return found == variable_names_.end() ? "" : found->second;
  }

 private:
  void ReadHeader(std::string_view value) {
    const TfBundleHeader header = Parsed([&] { return ParseBundleHeader(value); });
    if (header.big_endian) Refuse("was written by a big-endian machine, which is not supported");
    if (header.num_shards < 1 || header.num_shards > kMaxShards)
      Refuse(fmt::format("bad number of data files: got {}, want 1 to {}", header.num_shards,
                         kMaxShards));
    num_shards_ = header.num_shards;
  }

  void AddTensor(const std::string& name, const TfBundleEntry& entry,
                 const std::map<std::string, TfBundleEntry>& entries) {
    std::vector<TfPart> parts;
    const auto add = [&](const TfSlice& slice, const TfBundleEntry& location) {
      parts.push_back({.slice = slice, .index = locations_.size()});
      locations_.push_back(location);
    };
    if (entry.slices.empty()) add({}, entry);
    for (const TfSlice& slice : entry.slices) {
      const auto part = entries.find(EncodeSliceKey(name, slice));
      if (part == entries.end()) Refuse(fmt::format("{}: a slice is missing", name));
      if (part->second.type != entry.type)
        Refuse(fmt::format("{}: slices have different types", name));
      add(slice, part->second);
    }
    Add(name, entry.type, entry.dims, std::move(parts));
  }

  // Reads a tensor of one string: its length as a varint, the checksum of the length, the bytes.
  std::string ReadString(std::string_view name, const TfBundleEntry& location) const {
    const auto refuse = [&] { Refuse(fmt::format("{}: damaged; copy the file again", name)); };
    if (location.shard < 0 || location.shard >= num_shards_ || location.offset < 0) refuse();
    const Source& shard = Shard(location.shard);
    const auto size = static_cast<uint64_t>(location.size);
    if (location.size < 0 || size > shard.size().value_or(0)) refuse();
    std::string bytes(size, '\0');
    if (shard.ReadAt(static_cast<uint64_t>(location.offset), bytes) != size) refuse();
    constexpr size_t kMaxVarintBytes = 10, kChecksumBytes = 4;
    size_t header = 0;
    uint32_t length = 0;  // the checksum covers it as 32 bits
    for (bool more = true; more; ++header) {
      if (header >= std::min(size, kMaxVarintBytes)) refuse();
      const auto byte = static_cast<unsigned char>(bytes[header]);
      if (header < 5) length |= static_cast<uint32_t>(byte & 0x7f) << (7 * header);
      more = (byte & 0x80) != 0;
    }
    if (size - header < kChecksumBytes || size - header - kChecksumBytes != length) refuse();
    std::string checked(reinterpret_cast<const char*>(&length), sizeof(length));
    checked += bytes.substr(header);
    if (MaskedCrc32c(checked) != location.crc) refuse();
    return bytes.substr(header + kChecksumBytes);
  }

  const Source& Shard(int64_t number) const {
    std::unique_ptr<Source>& shard = shards_[number];
    if (shard == nullptr) {
      shard = open_shard_(number, num_shards_);
      bytes_left_ += shard->size().value_or(0);
    }
    return *shard;
  }

  // Tensors must not share bytes, or they could take more memory than the files have.
  void CheckPartFits(const std::string& name, TfType type, const TfPart& part,
                     uint64_t elements) const override {
    const TfBundleEntry& location = locations_[part.index];
    const auto refuse = [&] {
      Refuse(fmt::format(
          "{}: impossible location: got {} elements of {} in {} bytes at byte {} of "
          "data file {}",
          name, elements, NameOf(type), location.size, location.offset, location.shard));
    };
    if (location.shard < 0 || location.shard >= num_shards_ || location.size < 0 ||
        location.offset < 0)
      refuse();
    const auto bytes = static_cast<uint64_t>(location.size);
    const uint64_t file = Shard(location.shard).size().value_or(0);
    if (bytes != elements * SizeOf(type) || bytes > file || bytes > bytes_left_ ||
        static_cast<uint64_t>(location.offset) > file - bytes) {
      refuse();
    }
    bytes_left_ -= bytes;
  }

  void ReadPart(const std::string& name, TfType, const TfPart& part,
                std::span<char> out) const override {
    const TfBundleEntry& location = locations_[part.index];
    const Source& shard = Shard(location.shard);
    if (shard.ReadAt(static_cast<uint64_t>(location.offset), out) != out.size())
      Refuse(fmt::format("{}: data file {} is truncated; copy it again", name, shard.name()));
    if (const uint32_t got = MaskedCrc32c({out.data(), out.size()}); got != location.crc) {
      Refuse(
          fmt::format("{}: checksum mismatch in {}: got {:#010x}, want {:#010x}; copy the file "
                      "again",
                      name, shard.name(), got, location.crc));
    }
  }

  const std::unique_ptr<Source> index_;
  const OpenShard open_shard_;
  int64_t num_shards_ = 0;
  std::vector<TfBundleEntry> locations_;                       // indexed by TfPart::index
  mutable std::map<int64_t, std::unique_ptr<Source>> shards_;  // opened when first needed
  // The location of the object graph until variable_name() reads it; its names after that.
  mutable std::optional<TfBundleEntry> object_graph_;
  mutable std::map<std::string, std::string> variable_names_;
  mutable uint64_t bytes_left_ = 0;  // bytes of the open shards that no tensor has claimed yet
};

}  // namespace

std::unique_ptr<WeightsSource> ParseTfCheckpoint(const std::string& name,
                                                 std::unique_ptr<Source> index,
                                                 OpenShard open_shard) {
  return std::make_unique<V2Checkpoint>(name, std::move(index), std::move(open_shard));
}

std::unique_ptr<WeightsSource> OpenTfCheckpoint(const std::string& path) {
  const std::string index = path + std::string(kIndexSuffix);
  if (!std::filesystem::is_regular_file(index)) return OpenTfV1Checkpoint(path);
  return ParseTfCheckpoint(path, OpenFile(index), [path](int64_t shard, int64_t num_shards) {
    return OpenFile(fmt::format("{}.data-{:05}-of-{:05}", path, shard, num_shards));
  });
}

}  // namespace carole::io
