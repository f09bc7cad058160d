// Tar archives (POSIX ustar, pax, GNU long names) as lists of where their files lie. Nothing is
// unpacked, so that an archive of archives is read in place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/core/files/bytes.h"

namespace carole::io {

// A regular file of an archive.
struct TarFile {
  std::string name;     // its path, without a leading "./"
  uint64_t offset = 0;  // of its bytes in the archive's source
  uint64_t bytes = 0;
};

// Walks an archive from front to back: forward reads only, so a compressed source will do.
//
// Throws DataError, naming the header's byte offset, for a damaged or truncated archive, a path
// that leads out of the folder ("..", a leading "/"), links, sparse files and devices.
class TarReader {
 public:
  // The archive in [begin, end) of `source`, which must outlive the reader; end 0: of the source.
  explicit TarReader(const Source& source, uint64_t begin = 0, uint64_t end = 0);

  // The next regular file; folders are passed over. nullopt at the end mark, which must be there.
  std::optional<TarFile> Next();

 private:
  struct Header;

  Header ReadHeader() const;
  std::string ReadText(const Header& header, uint64_t max_bytes) const;
  void TakePax(const Header& header);
  void Skip(const Header& header);
  [[noreturn]] void Fail(const std::string& what) const;

  const Source& source_;
  uint64_t position_;  // of the next header
  uint64_t end_;       // no byte at or past it belongs to the archive
  std::string long_name_;
  std::optional<uint64_t> long_size_;
};

}  // namespace carole::io
