// Reads uint8 arrays from NumPy's .npz files, such as Keras's mnist.npz. An .npz file is a zip
// archive of .npy files (layout: io/records/FORMATS.md, "Raw data").
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/files/bytes.h"

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

// An open .npz archive. The constructor reads the list of members; Read() reads one array.
class NpzFile {
 public:
  // Throws DataError if the file is not a zip archive or is damaged. It also throws for features
  // that NumPy does not write: encryption, several volumes, more than 2^32 bytes.
  explicit NpzFile(std::unique_ptr<Source> file);

  const std::string& name() const { return file_->name(); }

  // Reads one array. The array "x_train" is the member x_train.npy, stored or deflated. Sizes are
  // checked before memory is allocated. Throws DataError if the member is missing, if its size or
  // CRC-32 differs from the archive's directory, and as ParseNpy() does.
  ByteArray Read(std::string_view array, size_t rank) const;

 private:
  // An entry of the zip archive's central directory.
  struct Member {
    std::string name;
    uint32_t method;  // of compression
    uint32_t crc;     // CRC-32 of the uncompressed bytes
    uint32_t compressed_bytes, bytes;
    uint32_t header_offset;  // of the member's local header in the file
  };

  void ReadDirectory(uint64_t size);
  std::string Unpack(const Member& member) const;
  std::string ReadPart(uint64_t offset, uint64_t bytes) const;
  [[noreturn]] void Fail(const std::string& what) const;

  std::unique_ptr<Source> file_;
  std::vector<Member> members_;
};

}  // namespace carole::io
