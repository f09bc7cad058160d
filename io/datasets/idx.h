// IDX files: MNIST's and Fashion-MNIST's raw images and labels (FORMATS.md).
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
  std::string pixels;  // (count, height, width) bytes; 0 is background
};

// The whole file, plain or gzip. Throws DataError when type, rank or size are not what the header
// says; sizes are checked before memory is allocated.
IdxImages ReadIdxImages(std::unique_ptr<Source> file);

// One byte for each label, plain or gzip.
std::string ReadIdxLabels(std::unique_ptr<Source> file);

// `folder`/`stem`-idxN-ubyte in any of its four spellings: "-idx" or ".idx", plain or ".gz"; empty
// when none is there. stem and rank are for instance "train-images" and 3.
std::filesystem::path FindIdx(const std::filesystem::path& folder, std::string_view stem, int rank);

// Opens it. Throws DataError naming the spellings when none is there.
std::unique_ptr<Source> OpenIdx(const std::filesystem::path& folder, std::string_view stem,
                                int rank);

}  // namespace carole::io
