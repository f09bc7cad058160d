// Reads IDX files, the raw format of MNIST and Fashion-MNIST (io/records/FORMATS.md, "Raw data").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "src/core/files/bytes.h"

namespace carole::io {

struct IdxImages {
  int64_t count = 0;
  int height = 0;
  int width = 0;
  std::string pixels;  // (count, height, width) bytes; 0 is the background
};

// Reads a whole file of images, plain or gzip. Throws DataError if the type or rank is wrong, or if
// the file's size differs from the header's sizes. Sizes are checked before memory is allocated.
IdxImages ReadIdxImages(std::unique_ptr<Source> file);

// Reads a whole file of labels, plain or gzip. Returns one byte per label. Throws DataError
// likewise.
std::string ReadIdxLabels(std::unique_ptr<Source> file);

// Finds the file `folder`/`stem`-idx`rank`-ubyte in any of its four spellings: with "-idx" or
// ".idx", plain or with ".gz". Returns an empty path if there is none. For example, `stem` is
// "train-images" and `rank` is 3.
std::filesystem::path FindIdx(const std::filesystem::path& folder, std::string_view stem, int rank);

// Opens the file that FindIdx() finds. Throws DataError with the spellings if there is none.
std::unique_ptr<Source> OpenIdx(const std::filesystem::path& folder, std::string_view stem,
                                int rank);

}  // namespace carole::io
