// The protocol buffers in TensorFlow's checkpoints, as far as tensors need them. Parse and Read
// functions throw DataError if the bytes are malformed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensorflow/tf_types.h"

namespace carole::io {

// TensorSliceProto.Extent: the range of a slice in one dimension. Length -1 means the whole
// dimension.
struct TfExtent {
  int64_t start = 0, length = -1;
  bool operator==(const TfExtent&) const = default;
};
// TensorSliceProto: a rectangular part of a tensor, with one extent for each dimension.
using TfSlice = std::vector<TfExtent>;

// BundleEntryProto (V2): the location of a tensor or of a slice.
struct TfBundleEntry {
  TfType type{};
  std::vector<int64_t> dims;
  int64_t shard = 0, offset = 0, size = 0;  // number of the data file; byte offset and size in it
  uint32_t crc = 0;                         // masked CRC-32C
  std::vector<TfSlice> slices;              // if not empty, the slices have entries of their own
};
TfBundleEntry ParseBundleEntry(std::string_view bytes);
std::string SerializeBundleEntry(const TfBundleEntry& entry);

// BundleHeaderProto (V2).
struct TfBundleHeader {
  int64_t num_shards = 0;
  bool big_endian = false;
};
TfBundleHeader ParseBundleHeader(std::string_view bytes);
std::string SerializeBundleHeader(const TfBundleHeader& header);

// Returns the key of a slice in the index. Keys sort by name, then by the extents.
std::string EncodeSliceKey(std::string_view name, const TfSlice& slice);

// TrackableObjectGraph (V2): for the variables of an object-based checkpoint, the key in the index
// and the name that the program gave to the variable.
struct TfVariableName {
  std::string key, name;
};
std::vector<TfVariableName> ParseObjectGraph(std::string_view bytes);

// SavedSliceMeta (V1): a tensor in the table of contents.
struct TfSavedMeta {
  std::string name;
  TfType type{};
  std::vector<int64_t> dims;
  std::vector<TfSlice> slices;
};
std::vector<TfSavedMeta> ParseSavedMeta(std::string_view bytes);

// SavedSlice (V1): a tensor or a slice, with its values. The views point into the parsed bytes.
struct TfSavedSlice {
  std::string_view name;
  TfSlice slice;
  std::string_view tensor;  // a TensorProto without type and shape
};
TfSavedSlice ParseSavedSlice(std::string_view bytes);

// Reads the values of a TensorProto as little-endian bytes of `type`. They must fill `out` exactly.
void ReadTensorProto(std::string_view tensor, TfType type, std::span<char> out);

}  // namespace carole::io
