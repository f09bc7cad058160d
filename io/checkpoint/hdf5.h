// HDF5 files, as far as checkpoints need them: groups, float datasets, and attributes that are
// strings, string lists and numbers. Objects are named by absolute paths, "/model_weights/conv1".
//
// Reading expects hostile files: links other than hard ones, external and virtual storage, filters
// other than deflate and shuffle, plug-ins, and sizes that the file cannot hold are refused with
// DataError. Errors name the file and the object: DiskError when the operating system refused, else
// DataError. The library is not thread-safe, so one mutex serializes all calls of the process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace carole::io {

// Variable-length strings lie in a heap without checksums, and the library (1.10) hangs or overruns
// its buffer when that is damaged. So they are read only from files that somebody vouches for, such
// as Keras's.
enum class HeapStrings { kRefuse, kAllow };

// Whether a file that can be read begins as HDF5 files do. Throws DiskError.
bool IsHdf5(const std::string& path);

class Hdf5File {
 public:
  // Makes or empties the file, which then grows on the disk. Throws DiskError. Metadata carries
  // checksums (format of 1.8).
  static Hdf5File Create(const std::string& path);
  // Opens for reading.
  static Hdf5File Open(const std::string& path, HeapStrings heap_strings = HeapStrings::kRefuse);

  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) = delete;
  ~Hdf5File();  // a new file that was not closed is deleted

  // Ends writing. Throws DiskError when the disk refused any of it, as WriteFloats() may, too.
  void Close();

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // size of a file opened for reading

  // Writing. Groups on the way to an object are made; an object that exists already is an error.
  void CreateGroup(const std::string& object);
  // Contiguous little-endian float32. data holds shape.size() elements.
  void WriteFloats(const std::string& object, const Shape& shape, std::span<const float> data);
  // Variable-length UTF-8 scalar, what h5py gives back as str. No NUL inside.
  void SetString(const std::string& object, const std::string& name, const std::string& value);
  // Fixed-length UTF-8 scalar, what h5py gives back as bytes. It needs no heap, so damage to it is
  // seen by the checksum of its object. No NUL inside, at most 64000 bytes.
  void SetFixedString(const std::string& object, const std::string& name, const std::string& value);
  // Fixed-length strings, split over <name>0, <name>1, … when too long for one attribute, as Keras
  // does.
  void SetStringList(const std::string& object, const std::string& name,
                     const std::vector<std::string>& values);
  void SetInt(const std::string& object, const std::string& name, int64_t value);
  void SetUnsigned(const std::string& object, const std::string& name, uint64_t value);

  // Reading.
  bool Exists(const std::string& object) const;
  // Names of what a group holds, sorted.
  std::vector<std::string> Children(const std::string& group) const;
  Shape ShapeOf(const std::string& object) const;
  // Any float type, converted to float32.
  std::vector<float> ReadFloats(const std::string& object) const;
  bool HasAttribute(const std::string& object, const std::string& name) const;
  std::vector<std::string> AttributeNames(const std::string& object) const;
  // Fixed length; variable length where HeapStrings allow it.
  std::string GetString(const std::string& object, const std::string& name) const;
  // The same, whole or split; an empty list may have any type.
  std::vector<std::string> GetStringList(const std::string& object, const std::string& name) const;
  int64_t GetInt(const std::string& object, const std::string& name) const;
  uint64_t GetUnsigned(const std::string& object, const std::string& name) const;

 private:
  Hdf5File(std::string path, int64_t id, uint64_t bytes, HeapStrings heap_strings)
      : path_(std::move(path)), id_(id), bytes_(bytes), heap_strings_(heap_strings) {}

  void ThrowIfRefused() const;

  std::string path_;
  int64_t id_;      // -1 when closed
  uint64_t bytes_;  // size of a file opened for reading
  HeapStrings heap_strings_;
  std::unique_ptr<int> write_error_;  // errno; of a new file
};

}  // namespace carole::io
