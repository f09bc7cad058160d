#include "io/tensorflow/tf_proto.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "src/core/error.h"

namespace carole::io {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::pbf_writer;

pbf_reader Reader(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
std::string_view ToView(protozero::data_view view) { return {view.data(), view.size()}; }

// Calls visit(field) for each field. `visit` consumes the value and returns true, or returns false
// to skip it.
template <typename Visit>
void VisitFields(std::string_view bytes, Visit&& visit) {
  try {
    for (pbf_reader message = Reader(bytes); message.next();) {
      if (!visit(message)) message.skip();
    }
  } catch (const protozero::exception& e) {
    throw DataError(fmt::format("[io.tf] malformed protobuf: {}", e.what()));
  }
}

bool IsMessage(const pbf_reader& field) {
  return field.wire_type() == pbf_wire_type::length_delimited;
}
bool IsVarint(const pbf_reader& field) { return field.wire_type() == pbf_wire_type::varint; }

// TensorShapeProto { 2: Dim { 1: size } }
std::vector<int64_t> ParseShape(std::string_view bytes) {
  std::vector<int64_t> dims;
  VisitFields(bytes, [&](pbf_reader& field) {
    if (field.tag() != 2 || !IsMessage(field)) return false;
    int64_t size = 0;
    VisitFields(ToView(field.get_view()), [&](pbf_reader& dim) {
      if (dim.tag() != 1 || !IsVarint(dim)) return false;
      size = dim.get_int64();
      return true;
    });
    dims.push_back(size);
    return true;
  });
  return dims;
}

// TensorSliceProto { 1: Extent { 1: start, 2: length } }
TfSlice ParseSlice(std::string_view bytes) {
  TfSlice slice;
  VisitFields(bytes, [&](pbf_reader& field) {
    if (field.tag() != 1 || !IsMessage(field)) return false;
    TfExtent extent;
    VisitFields(ToView(field.get_view()), [&](pbf_reader& part) {
      if (part.tag() > 2 || !IsVarint(part)) return false;
      int64_t& value = part.tag() == 1 ? extent.start : extent.length;
      value = part.get_int64();
      return true;
    });
    slice.push_back(extent);
    return true;
  });
  return slice;
}

std::string SerializeShape(std::span<const int64_t> dims) {
  std::string shape;
  for (int64_t size : dims) {
    std::string dim;
    if (size != 0) pbf_writer(dim).add_int64(1, size);
    pbf_writer(shape).add_message(2, dim);
  }
  return shape;
}

// Finds a field of a message. The values of V1 are SavedTensorSlices { 1: meta, 2: data }.
std::string_view FindMessage(std::string_view bytes, uint32_t tag) {
  std::string_view found;
  VisitFields(bytes, [&](pbf_reader& field) {
    if (field.tag() != tag || !IsMessage(field)) return false;
    found = ToView(field.get_view());
    return true;
  });
  return found;
}

// Order-preserving encoding (TensorFlow's OrderedCode): encoded keys sort as the values do. An
// unsigned number is its number of bytes, then the bytes in big-endian order.
void AppendOrdered(std::string& key, uint64_t value) {
  std::string digits;
  for (; value > 0; value >>= 8) digits.insert(digits.begin(), static_cast<char>(value & 255));
  key.push_back(static_cast<char>(digits.size()));
  key += digits;
}

// A signed number of n bytes begins with n bits that differ from its sign bit.
void AppendOrderedSigned(std::string& key, int64_t value) {
  const uint64_t magnitude = static_cast<uint64_t>(value < 0 ? ~value : value);
  int num_bytes = 1;
  while (num_bytes < 10 && magnitude >> std::min(7 * num_bytes - 1, 63) != 0) ++num_bytes;
  std::string bytes;
  for (int i = num_bytes - 1; i >= 0; --i)
    bytes.push_back(static_cast<char>(i >= 8 ? value >> 63 : value >> (8 * i)));
  for (int bit = 0; bit < num_bytes; ++bit) bytes[bit / 8] ^= static_cast<char>(0x80 >> bit % 8);
  key += bytes;
}

// A string has its bytes 00 and ff escaped (as 00 ff and ff 00) and ends with 00 01.
void AppendOrdered(std::string& key, std::string_view text) {
  for (char c : text) {
    key.push_back(c);
    if (c == '\0') key.push_back('\xff');
    if (c == '\xff') key.push_back('\0');
  }
  key += std::string_view("\0\1", 2);
}

// Appends the numbers of a TensorProto to a buffer, which they must fill exactly.
class Filler {
 public:
  Filler(TfType type, std::span<char> out) : element_bytes_(SizeOf(type)), out_(out) {}

  void AddBytes(std::string_view bytes) {
    if (bytes.size() > out_.size()) Refuse();
    std::ranges::copy(bytes, out_.begin());
    out_ = out_.subspan(bytes.size());
  }
  // Appends the low bytes of a number in two's complement.
  void AddInteger(int64_t value) {
    AddBytes({reinterpret_cast<const char*>(&value), element_bytes_});
  }
  template <typename Real>
  void AddReal(Real value) {
    AddBytes({reinterpret_cast<const char*>(&value), sizeof value});
  }
  void Finish() const {
    if (!out_.empty()) Refuse();
  }

 private:
  [[noreturn]] static void Refuse() {
    throw DataError("[io.tf] tensor: the number of values does not match its shape");
  }

  size_t element_bytes_;
  std::span<char> out_;
};

// The field of TensorProto that holds the values of a type.
struct ValueField {
  uint32_t tag;
  bool is_raw;  // packed values are stored as in memory
};
ValueField FieldOf(TfType type) {
  switch (type) {
    case TfType::kFloat:
      return {5, true};
    case TfType::kDouble:
      return {6, true};
    case TfType::kInt64:
      return {10, false};
    case TfType::kBool:
      return {11, false};
    case TfType::kHalf:
    case TfType::kBfloat16:
      return {13, false};
    case TfType::kUint32:
      return {16, false};
    case TfType::kUint64:
      return {17, false};
    default:
      return {7, false};
  }
}

constexpr uint32_t kTensorContent = 4;

}  // namespace

TfBundleEntry ParseBundleEntry(std::string_view bytes) {
  TfBundleEntry entry;
  VisitFields(bytes, [&](pbf_reader& field) {
    if (IsVarint(field) && field.tag() == 1) {
      entry.type = static_cast<TfType>(field.get_int32());
    } else if (IsVarint(field) && field.tag() >= 3 && field.tag() <= 5) {
      int64_t& value = *std::array{&entry.shard, &entry.offset, &entry.size}[field.tag() - 3];
      value = field.get_int64();
    } else if (IsMessage(field) && field.tag() == 2) {
      entry.dims = ParseShape(ToView(field.get_view()));
    } else if (IsMessage(field) && field.tag() == 7) {
      entry.slices.push_back(ParseSlice(ToView(field.get_view())));
    } else if (field.wire_type() == pbf_wire_type::fixed32 && field.tag() == 6) {
      entry.crc = field.get_fixed32();
    } else {
      return false;
    }
    return true;
  });
  return entry;
}

std::string SerializeBundleEntry(const TfBundleEntry& entry) {
  std::string bytes;
  pbf_writer writer(bytes);
  writer.add_int32(1, static_cast<int32_t>(entry.type));
  writer.add_message(2, SerializeShape(entry.dims));
  if (entry.shard != 0) writer.add_int64(3, entry.shard);
  if (entry.offset != 0) writer.add_int64(4, entry.offset);
  if (entry.size != 0) writer.add_int64(5, entry.size);
  writer.add_fixed32(6, entry.crc);
  return bytes;
}

TfBundleHeader ParseBundleHeader(std::string_view bytes) {
  TfBundleHeader header;
  VisitFields(bytes, [&](pbf_reader& field) {
    if (!IsVarint(field) || field.tag() > 2) return false;
    const uint32_t tag = field.tag();
    const int64_t value = field.get_int64();
    if (tag == 1) header.num_shards = value;
    if (tag == 2) header.big_endian = value != 0;
    return true;
  });
  return header;
}

std::string SerializeBundleHeader(const TfBundleHeader& header) {
  std::string bytes, version;
  pbf_writer(version).add_int32(1, 1);  // producer
  pbf_writer writer(bytes);
  writer.add_int64(1, header.num_shards);
  writer.add_message(3, version);
  return bytes;
}

std::string EncodeSliceKey(std::string_view name, const TfSlice& slice) {
  std::string key;
  AppendOrdered(key, uint64_t{0});  // distinguishes the key from names, which are not encoded
  AppendOrdered(key, name);
  AppendOrdered(key, slice.size());
  for (const TfExtent& extent : slice) {
    AppendOrderedSigned(key, extent.start);
    AppendOrderedSigned(key, extent.length);
  }
  return key;
}

// TrackableObjectGraph { 1: nodes { 2: attributes { 2: full_name, 3: checkpoint_key } } }
std::vector<TfVariableName> ParseObjectGraph(std::string_view bytes) {
  std::vector<TfVariableName> names;
  const auto parse_attribute = [&](pbf_reader& field) {
    if (field.tag() != 2 || !IsMessage(field)) return false;
    TfVariableName& added = names.emplace_back();
    VisitFields(ToView(field.get_view()), [&](pbf_reader& text) {
      if ((text.tag() != 2 && text.tag() != 3) || !IsMessage(text)) return false;
      std::string& value = text.tag() == 2 ? added.name : added.key;
      value = ToView(text.get_view());
      return true;
    });
    return true;
  };
  VisitFields(bytes, [&](pbf_reader& field) {
    if (field.tag() != 1 || !IsMessage(field)) return false;
    VisitFields(ToView(field.get_view()), parse_attribute);
    return true;
  });
  return names;
}

// SavedTensorSliceMeta { 1: SavedSliceMeta { 1: name, 2: shape, 3: type, 4: slices } }
std::vector<TfSavedMeta> ParseSavedMeta(std::string_view bytes) {
  std::vector<TfSavedMeta> all;
  VisitFields(FindMessage(bytes, 1), [&](pbf_reader& tensor) {
    if (tensor.tag() != 1 || !IsMessage(tensor)) return false;
    TfSavedMeta meta;
    VisitFields(ToView(tensor.get_view()), [&](pbf_reader& field) {
      if (IsVarint(field) && field.tag() == 3) {
        meta.type = static_cast<TfType>(field.get_int32());
      } else if (IsMessage(field) && field.tag() == 1) {
        meta.name = ToView(field.get_view());
      } else if (IsMessage(field) && field.tag() == 2) {
        meta.dims = ParseShape(ToView(field.get_view()));
      } else if (IsMessage(field) && field.tag() == 4) {
        meta.slices.push_back(ParseSlice(ToView(field.get_view())));
      } else {
        return false;
      }
      return true;
    });
    all.push_back(std::move(meta));
    return true;
  });
  return all;
}

// SavedSlice { 1: name, 2: slice, 3: data }
TfSavedSlice ParseSavedSlice(std::string_view bytes) {
  TfSavedSlice saved;
  VisitFields(FindMessage(bytes, 2), [&](pbf_reader& field) {
    if (!IsMessage(field) || field.tag() > 3) return false;
    const uint32_t tag = field.tag();
    const std::string_view value = ToView(field.get_view());
    if (tag == 1) saved.name = value;
    if (tag == 2) saved.slice = ParseSlice(value);
    if (tag == 3) saved.tensor = value;
    return true;
  });
  return saved;
}

void ReadTensorProto(std::string_view tensor, TfType type, std::span<char> out) {
  const ValueField want = FieldOf(type);
  Filler filler(type, out);
  VisitFields(tensor, [&](pbf_reader& field) {
    const bool wanted = field.tag() == want.tag;
    if (IsMessage(field) && (field.tag() == kTensorContent || (wanted && want.is_raw))) {
      filler.AddBytes(ToView(field.get_view()));
      return true;
    }
    if (!wanted) return false;
    if (IsMessage(field)) {
      for (int64_t value : field.get_packed_int64()) filler.AddInteger(value);
    } else if (IsVarint(field) && !want.is_raw) {
      filler.AddInteger(field.get_int64());
    } else if (field.wire_type() == pbf_wire_type::fixed32 && type == TfType::kFloat) {
      filler.AddReal(field.get_float());
    } else if (field.wire_type() == pbf_wire_type::fixed64 && type == TfType::kDouble) {
      filler.AddReal(field.get_double());
    } else {
      return false;
    }
    return true;
  });
  filler.Finish();
}

}  // namespace carole::io
