// NumPy's .npz files, such as Keras's mnist.npz: arrays of bytes in a zip archive (FORMATS.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/files/bytes.h"

namespace carole::io {

struct ByteArray {
  std::vector<int64_t> shape;
  std::string bytes;  // row-major
};

// The array of a .npy file's bytes. `name` is for errors. Throws DataError when it is not of uint8
// and row-major, when its shape is not of `rank` sizes of 1 or more, or when its bytes are not as
// many.
ByteArray ParseNpy(const std::string& name, std::string bytes, size_t rank);

// The list of what an archive holds; arrays are read when they are asked for.
class NpzFile {
 public:
  // Throws DataError when the file is no zip archive, is damaged, or needs what NumPy does not
  // write (encryption, several volumes, more than 2^32 bytes).
  explicit NpzFile(std::unique_ptr<Source> file);

  const std::string& name() const { return file_->name(); }

  // The array "x_train" is the member x_train.npy, stored or deflated. Throws DataError when there
  // is none, when it is not of uint8 and row-major, when its shape is not of `rank` positive sizes,
  // or when its bytes or their crc are not what the archive says. Sizes are checked before memory
  // is allocated.
  ByteArray Read(std::string_view array, size_t rank) const;

 private:
  struct Member {
    std::string name;
    uint32_t method, crc, packed, bytes, header;
  };

  void ReadDirectory(uint64_t size);
  std::string Unpack(const Member& member) const;
  std::string ReadPart(uint64_t offset, uint64_t bytes) const;
  [[noreturn]] void Fail(const std::string& what) const;

  std::unique_ptr<Source> file_;
  std::vector<Member> members_;
};

}  // namespace carole::io
