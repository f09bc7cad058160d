// Reads uint8 arrays from NumPy's .npz files, such as Keras's mnist.npz. An .npz file is a zip
// archive of .npy files (layout: io/records/FORMATS.md, "Raw data").
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/files/bytes.h"

struct zip;

namespace carole::io {

// An array of uint8 elements.
struct ByteArray {
  std::vector<int64_t> shape;
  std::string bytes;  // row-major
};

// Parses the content of a .npy file. `name` is the file's name in error messages. Throws DataError
// if the array is not uint8 and row-major, if its shape does not have `rank` positive sizes, or if
// the number of bytes differs from the shape.
ByteArray ParseNpy(const std::string& name, std::string bytes, size_t rank);

// An open .npz archive. The constructor reads the file and its list of members; Read() reads one
// array. Not thread-safe.
class NpzFile {
 public:
  // Throws DataError if the file is not a zip archive, is damaged, or has more than 2^32 bytes.
  explicit NpzFile(std::unique_ptr<Source> file);

  const std::string& name() const { return name_; }

  // Reads one array. The array "x_train" is the member x_train.npy, stored or deflated. An array
  // may have at most 2^30 bytes. Throws DataError if the member is missing, encrypted or larger, if
  // its size or CRC-32 differs from the archive's directory, and as ParseNpy() does.
  ByteArray Read(std::string_view array, size_t rank) const;

 private:
  struct CloseZip {
    void operator()(zip* archive) const;
  };

  std::string Unpack(const std::string& member) const;
  [[noreturn]] void Fail(const std::string& what) const;

  const std::string name_;
  const std::string bytes_;                 // the file, which archive_ refers to
  std::unique_ptr<zip, CloseZip> archive_;  // libzip's zip_t
};

}  // namespace carole::io
