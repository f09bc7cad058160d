// The protocol buffers in TensorFlow's checkpoints, as far as tensors need them. Parsing throws
// DataError.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensorflow/tf_types.h"

namespace carole::io {

// Part of a tensor: for each dimension where it starts and how long it is; length -1 is all of it.
struct TfExtent {
  int64_t start = 0, length = -1;
  bool operator==(const TfExtent&) const = default;
};
using TfSlice = std::vector<TfExtent>;

// A tensor of V2's index, or a part of one.
struct TfBundleEntry {
  TfType type{};
  std::vector<int64_t> dims;
  int64_t shard = 0, offset = 0, size = 0;  // number of the data file; byte place and size in it
  uint32_t crc = 0;                         // masked
  std::vector<TfSlice> slices;
};
TfBundleEntry ParseBundleEntry(std::string_view bytes);
std::string SerializeBundleEntry(const TfBundleEntry& entry);

struct TfBundleHeader {
  int64_t num_shards = 0;
  bool big_endian = false;
};
TfBundleHeader ParseBundleHeader(std::string_view bytes);
std::string SerializeBundleHeader(const TfBundleHeader& header);

// The key under which an index holds a part: sorts by name, then by place.
std::string EncodeSliceKey(std::string_view name, const TfSlice& slice);

// A tensor of V1's table of contents.
struct TfSavedMeta {
  std::string name;
  TfType type{};
  std::vector<int64_t> dims;
  std::vector<TfSlice> slices;
};
std::vector<TfSavedMeta> ParseSavedMeta(std::string_view bytes);

// A value of V1's table.
struct TfSavedSlice {
  std::string_view name;
  TfSlice slice;
  std::string_view tensor;  // a TensorProto without type and shape
};
TfSavedSlice ParseSavedSlice(std::string_view bytes);

// The values of a TensorProto as little-endian bytes of `type`; `out` has the size that they must
// have.
void ReadTensorProto(std::string_view tensor, TfType type, std::span<char> out);

}  // namespace carole::io
