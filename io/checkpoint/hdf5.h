// HDF5 files, as far as checkpoints need them: groups, datasets of floats, and attributes that are
// strings, lists of strings, or integers. Objects are named by absolute paths, such as
// "/model_weights/conv1".
//
// Files that are read may be hostile. These are refused with DataError: links other than hard
// links, external and virtual storage, filters other than deflate and shuffle, and sizes that the
// file cannot hold. Plug-ins are never loaded. The essay in hdf5.cpp gives the reasons.
//
// Every function may throw DiskError, if the operating system refused, or DataError. The text names
// the file and the object. The library is not thread-safe, so one mutex serializes all calls of the
// process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace carole::io {

// Whether strings of variable length may be read. They are stored in a heap without checksums, and
// the library (1.10) hangs or overruns its buffer if that heap is damaged. So they are allowed only
// for files that somebody vouches for, such as those of Keras.
enum class HeapStrings { kRefuse, kAllow };

// True if the file begins with HDF5's signature. Throws DiskError if it cannot be read.
bool IsHdf5(const std::string& path);

// An open HDF5 file, for writing or for reading.
class Hdf5File {
 public:
  // Creates or truncates the file for writing. It grows on the disk while data is written; no copy
  // stays in memory. Metadata carries checksums (format of 1.8). Throws DiskError.
  static Hdf5File Create(const std::string& path);
  // Opens the file for reading.
  static Hdf5File Open(const std::string& path, HeapStrings heap_strings = HeapStrings::kRefuse);

  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) = delete;
  ~Hdf5File();  // a new file that was not closed is deleted

  // Ends writing and makes the content durable. Throws DiskError if any write failed; WriteFloats()
  // may throw that earlier.
  void Close();

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // size of a file that was opened for reading

  // Writing. These functions create the groups on the way to an object. It is an error if the
  // object or attribute exists already.
  void CreateGroup(const std::string& object);
  // Writes a contiguous dataset of little-endian float32. `data` holds shape.size() elements.
  void WriteFloats(const std::string& object, const Shape& shape, std::span<const float> data);
  // Sets an attribute to a variable-length UTF-8 string, which h5py returns as str. The value must
  // not contain NUL.
  void SetString(const std::string& object, const std::string& name, const std::string& value);
  // Sets an attribute to a fixed-length UTF-8 string, which h5py returns as bytes. It needs no
  // heap, so the checksum of the object covers it. The value must not contain NUL and has at most
  // 64000 bytes.
  void SetFixedString(const std::string& object, const std::string& name, const std::string& value);
  // Sets an attribute to a list of fixed-length strings. A list that is too long for one attribute
  // is split into <name>0, <name>1, …, as Keras does.
  void SetStringList(const std::string& object, const std::string& name,
                     const std::vector<std::string>& values);
  void SetInt(const std::string& object, const std::string& name, int64_t value);
  void SetUnsigned(const std::string& object, const std::string& name, uint64_t value);

  // Reading.
  bool Exists(const std::string& object) const;
  // The names of a group's members, sorted.
  std::vector<std::string> Children(const std::string& group) const;
  // The paths of all datasets in the file. Throws DataError if the file has a link that is not a
  // hard link.
  std::vector<std::string> Datasets() const;
  Shape ShapeOf(const std::string& object) const;
  // The element type of a dataset, such as "float32" or "uint8", or "other".
  std::string TypeOf(const std::string& object) const;
  // Reads a dataset of any floating-point type, converted to float32.
  std::vector<float> ReadFloats(const std::string& object) const;
  bool HasAttribute(const std::string& object, const std::string& name) const;
  std::vector<std::string> AttributeNames(const std::string& object) const;
  // Reads one string of fixed length, or of variable length if HeapStrings allows it.
  std::string GetString(const std::string& object, const std::string& name) const;
  // Reads a list of such strings, in one attribute or split. An empty list may have any type.
  std::vector<std::string> GetStringList(const std::string& object, const std::string& name) const;
  int64_t GetInt(const std::string& object, const std::string& name) const;
  uint64_t GetUnsigned(const std::string& object, const std::string& name) const;

 private:
  Hdf5File(std::string path, int64_t id, uint64_t bytes, HeapStrings heap_strings)
      : path_(std::move(path)), id_(id), bytes_(bytes), heap_strings_(heap_strings) {}

  void ThrowIfWriteFailed() const;

  std::string path_;
  int64_t id_;      // -1 when closed
  uint64_t bytes_;  // size of a file that was opened for reading
  HeapStrings heap_strings_;
  // New files only: errno of the first failed write. On the heap, so that a move keeps its address.
  std::unique_ptr<int> write_error_;
};

}  // namespace carole::io
