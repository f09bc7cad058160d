// The functions of hdf5.h that read and write attributes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "io/checkpoint/hdf5.h"
#include "io/checkpoint/hdf5_internal.h"
#include "src/core/check.h"
#include "src/core/divide_up.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

using namespace hdf5_internal;  // NOLINT: that header is made for this file

// Keras's limit for one attribute: in the old format the header of an object holds 64 KiB.
constexpr size_t kMaxAttributeBytes = 64512;

std::string NameOf(const std::string& object, const std::string& name) {
  return fmt::format("{}, attribute {}", object, name);
}

Handle StringType(size_t bytes) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, bytes);
  H5Tset_cset(type, H5T_CSET_UTF8);
  if (bytes != H5T_VARIABLE) H5Tset_strpad(type, H5T_STR_NULLPAD);
  return type;
}

// Writes one attribute of an existing object.
void Write(hid_t file, const Site& object, const std::string& name, hid_t type, hid_t space,
           const void* data) {
  const std::string full_name = NameOf(object.object, name);
  const Site site{object.file, full_name};
  const Handle owner = OpenObject(file, object);
  const Handle attribute(
      Check(H5Acreate2(owner, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), site, "create"),
      H5Aclose);
  Check(H5Awrite(attribute, type, data), site, "write");
}

void WriteScalar(hid_t file, const Site& object, const std::string& name, hid_t type,
                 const void* data) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  Write(file, object, name, type, space, data);
}

void WriteStrings(hid_t file, const Site& object, const std::string& name,
                  std::span<const std::string> values, size_t width) {
  std::vector<char> block(std::max<size_t>(values.size(), 1) * width);  // never a null pointer
  for (size_t i = 0; i < values.size(); ++i) {
    std::copy(values[i].begin(), values[i].end(), block.begin() + static_cast<int64_t>(i * width));
  }
  const hsize_t count = values.size();
  const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  Write(file, object, name, StringType(width), space, block.data());
}

// An attribute that is open for reading, with its type and number of elements.
struct OpenAttribute {
  OpenAttribute(hid_t file, const Site& object, const std::string& name)
      : full_name(NameOf(object.object, name)),
        site{object.file, full_name},
        owner(OpenObject(file, object)),
        attribute(Check(H5Aopen(owner, name.c_str(), H5P_DEFAULT), site, "open"), H5Aclose),
        type(Check(H5Aget_type(attribute), site, "read the type"), H5Tclose),
        space(Check(H5Aget_space(attribute), site, "read the shape"), H5Sclose),
        count(Check(H5Sget_simple_extent_npoints(space), site, "read the shape")) {}

  [[noreturn]] void Refuse(std::string_view what) const {
    throw DataError(fmt::format("[io.hdf5] {}: {}: {}", site.file, full_name, what));
  }

  std::string full_name;
  Site site;
  Handle owner, attribute, type, space;
  hssize_t count;
};

std::vector<std::string> ReadFixed(const OpenAttribute& a, size_t width, uint64_t file_bytes) {
  if (static_cast<uint64_t>(a.count) > file_bytes / width)
    a.Refuse("has more strings than the file can hold");
  std::vector<char> block(static_cast<size_t>(a.count) * width);
  Check(H5Aread(a.attribute, a.type, block.data()), a.site, "read");
  std::vector<std::string> values;
  for (size_t i = 0; i < block.size(); i += width) {
    values.emplace_back(&block[i], strnlen(&block[i], width));
  }
  return values;
}

std::vector<std::string> ReadVariable(const OpenAttribute& a, uint64_t file_bytes) {
  if (static_cast<uint64_t>(a.count) > file_bytes / 16)  // each takes 16 bytes outside of the heap
    a.Refuse("has more strings than the file can hold");
  std::vector<char*> pointers(static_cast<size_t>(a.count), nullptr);
  Check(H5Aread(a.attribute, a.type, pointers.data()), a.site, "read");
  std::vector<std::string> values;
  for (const char* text : pointers) values.emplace_back(text != nullptr ? text : "");
  H5Dvlen_reclaim(a.type, a.space, H5P_DEFAULT, pointers.data());
  return values;
}

std::vector<std::string> ReadStrings(const OpenAttribute& a, uint64_t file_bytes,
                                     HeapStrings heap_strings) {
  if (a.count == 0) return {};
  if (H5Tget_class(a.type) != H5T_STRING) a.Refuse("is not a string");
  if (Check(H5Tis_variable_str(a.type), a.site, "read the type") > 0) {
    if (heap_strings == HeapStrings::kRefuse)
      a.Refuse("has strings of variable length, want fixed length");
    return ReadVariable(a, file_bytes);
  }
  return ReadFixed(a, std::max<size_t>(H5Tget_size(a.type), 1), file_bytes);
}

template <typename Integer>
Integer ReadInteger(hid_t file, const Site& object, const std::string& name, hid_t type) {
  const OpenAttribute a(file, object, name);
  if (H5Tget_class(a.type) != H5T_INTEGER || a.count != 1) a.Refuse("is not a single integer");
  Integer value = 0;
  Check(H5Aread(a.attribute, type, &value), a.site, "read");
  return value;
}

herr_t AppendName(hid_t, const char* name, const H5A_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

}  // namespace

void Hdf5File::SetString(const std::string& object, const std::string& name,
                         const std::string& value) {
  const Lock lock;
  const char* text = value.c_str();
  WriteScalar(id_, {path_, object}, name, StringType(H5T_VARIABLE), &text);
}

void Hdf5File::SetFixedString(const std::string& object, const std::string& name,
                              const std::string& value) {
  CAROLE_CHECK(value.size() <= 64000, "attribute {} of {}: {} bytes", name, object, value.size());
  const Lock lock;
  // The library has no strings of length 0. An empty string is stored as one NUL, that of c_str().
  WriteScalar(id_, {path_, object}, name, StringType(std::max<size_t>(value.size(), 1)),
              value.c_str());
}

void Hdf5File::SetStringList(const std::string& object, const std::string& name,
                             const std::vector<std::string>& values) {
  const Lock lock;
  size_t width = 1;
  for (const std::string& value : values) width = std::max(width, value.size());
  CAROLE_CHECK(width <= kMaxAttributeBytes, "attribute {} of {}: a string of {} bytes", name,
               object, width);
  const size_t per_part = kMaxAttributeBytes / width;
  const size_t parts = DivideUp(values.size(), per_part);
  if (parts <= 1) return WriteStrings(id_, {path_, object}, name, values, width);
  for (size_t part = 0; part < parts; ++part) {
    const size_t first = values.size() * part / parts;
    const size_t end = values.size() * (part + 1) / parts;
    WriteStrings(id_, {path_, object}, fmt::format("{}{}", name, part),
                 std::span(values).subspan(first, end - first), width);
  }
}

void Hdf5File::SetInt(const std::string& object, const std::string& name, int64_t value) {
  const Lock lock;
  WriteScalar(id_, {path_, object}, name, H5T_STD_I64LE, &value);
}

void Hdf5File::SetUnsigned(const std::string& object, const std::string& name, uint64_t value) {
  const Lock lock;
  WriteScalar(id_, {path_, object}, name, H5T_STD_U64LE, &value);
}

bool Hdf5File::HasAttribute(const std::string& object, const std::string& name) const {
  const Lock lock;
  const Site site{path_, object};
  return Check(H5Aexists(OpenObject(id_, site), name.c_str()), site, "look up attributes") > 0;
}

std::vector<std::string> Hdf5File::AttributeNames(const std::string& object) const {
  const Lock lock;
  const Site site{path_, object};
  std::vector<std::string> names;
  hsize_t index = 0;
  Check(H5Aiterate2(OpenObject(id_, site), H5_INDEX_NAME, H5_ITER_INC, &index, AppendName, &names),
        site, "list the attributes");
  return names;
}

std::string Hdf5File::GetString(const std::string& object, const std::string& name) const {
  const Lock lock;
  const OpenAttribute a(id_, {path_, object}, name);
  if (a.count != 1) a.Refuse("is not a single string");
  return ReadStrings(a, bytes_, heap_strings_).front();
}

std::vector<std::string> Hdf5File::GetStringList(const std::string& object,
                                                 const std::string& name) const {
  const Lock lock;
  const Site site{path_, object};
  if (HasAttribute(object, name)) return ReadStrings({id_, site, name}, bytes_, heap_strings_);
  std::vector<std::string> values;
  int part = 0;
  for (; HasAttribute(object, fmt::format("{}{}", name, part)); ++part) {
    const auto more =
        ReadStrings({id_, site, fmt::format("{}{}", name, part)}, bytes_, heap_strings_);
    values.insert(values.end(), more.begin(), more.end());
  }
  if (part == 0) {
    throw DataError(fmt::format("[io.hdf5] {}: {}: is missing", path_, NameOf(object, name)));
  }
  return values;
}

int64_t Hdf5File::GetInt(const std::string& object, const std::string& name) const {
  const Lock lock;
  return ReadInteger<int64_t>(id_, {path_, object}, name, H5T_NATIVE_INT64);
}

uint64_t Hdf5File::GetUnsigned(const std::string& object, const std::string& name) const {
  const Lock lock;
  return ReadInteger<uint64_t>(id_, {path_, object}, name, H5T_NATIVE_UINT64);
}

}  // namespace carole::io
