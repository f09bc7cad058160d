#include "io/datasets/idx.h"

#include <fmt/format.h>

#include <array>

#include "io/archives/inflate.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

constexpr uint64_t kMaxIdxBytes = uint64_t{1} << 30;

// Returns the bytes after the header and stores the header's sizes in `sizes`.
template <size_t kRank>
std::string ReadIdx(std::unique_ptr<Source> file, std::array<int64_t, kRank>& sizes) {
  const std::unique_ptr<Source> source = InflateIfGzip(std::move(file));
  const auto fail = [&](const std::string& what) {
    throw DataError(fmt::format("[io.idx] {}: {}", source->name(), what));
  };
  std::array<char, 4 + 4 * kRank> header{};
  const size_t got = source->ReadAt(0, header);
  if (got < header.size()) {
    fail(fmt::format("truncated header: got {} bytes, want {}", got, header.size()));
  }
  const auto big_endian = [&header](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = (value << 8) | static_cast<uint8_t>(header[at + i]);
    return value;
  };
  constexpr uint32_t kMagic = 0x0800 + kRank;  // type uint8, then the rank
  if (big_endian(0) != kMagic) {
    fail(fmt::format("wrong magic: got {:#010x}, want {:#010x}; is this an IDX file?",
                     big_endian(0), kMagic));
  }
  uint64_t want = 1;
  for (size_t i = 0; i < kRank; ++i) {
    sizes[i] = big_endian(4 + 4 * i);
    if (sizes[i] == 0 || static_cast<uint64_t>(sizes[i]) > kMaxIdxBytes / want) {
      fail(fmt::format(
          "size {} out of range: got {}, want at least 1, and at most {} bytes in total", i,
          sizes[i], kMaxIdxBytes));
    }
    want *= static_cast<uint64_t>(sizes[i]);
  }
  std::string bytes = ReadAll(*source, header.size() + want);
  bytes.erase(0, header.size());
  if (bytes.size() != want) {
    fail(fmt::format("truncated data: got {} bytes after the header, want {}", bytes.size(), want));
  }
  return bytes;
}

}  // namespace

IdxImages ReadIdxImages(std::unique_ptr<Source> file) {
  std::array<int64_t, 3> sizes{};
  std::string pixels = ReadIdx(std::move(file), sizes);
  return {.count = sizes[0],
          .height = static_cast<int>(sizes[1]),
          .width = static_cast<int>(sizes[2]),
          .pixels = std::move(pixels)};
}

std::string ReadIdxLabels(std::unique_ptr<Source> file) {
  std::array<int64_t, 1> sizes{};
  return ReadIdx(std::move(file), sizes);
}

std::filesystem::path FindIdx(const std::filesystem::path& folder, std::string_view stem,
                              int rank) {
  for (const char* dash : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      auto path = folder / fmt::format("{}{}idx{}-ubyte{}", stem, dash, rank, suffix);
      if (std::filesystem::exists(path)) return path;
    }
  }
  return {};
}

std::unique_ptr<Source> OpenIdx(const std::filesystem::path& folder, std::string_view stem,
                                int rank) {
  const std::filesystem::path path = FindIdx(folder, stem, rank);
  if (!path.empty()) return OpenFile(path);
  throw DataError(
      fmt::format("[io.idx] {}: no such file: want {}-idx{}-ubyte or {}.idx{}-ubyte, "
                  "plain or with .gz",
                  folder.string(), stem, rank, stem, rank));
}

}  // namespace carole::io
