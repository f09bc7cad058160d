// Lists the files of a tar archive (POSIX ustar, pax, GNU long names) with their offsets. Nothing
// is unpacked, so an archive inside an archive is read in place. ImageNet's training set is of this
// kind: one archive of 1000 archives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/core/files/bytes.h"

namespace carole::io {

// A regular file in an archive.
struct TarFile {
  std::string name;     // path, without a leading "./"
  uint64_t offset = 0;  // of the file's bytes, in the archive's source
  uint64_t bytes = 0;
};

// Walks an archive from front to back. It only reads forward, so a compressed source is fine.
//
// Throws DataError, with the header's byte offset, if the archive is damaged or truncated. It also
// throws for a path that leads out of the folder (".." or a leading "/"), a link, a sparse file or
// a device.
class TarReader {
 public:
  // Reads the archive in bytes [begin, end) of `source`; end 0 means the end of the source.
  // `source` must outlive the reader.
  explicit TarReader(const Source& source, uint64_t begin = 0, uint64_t end = 0);

  // Returns the next regular file; folders are skipped. Returns nullopt at the end-of-archive
  // block. An archive without that block is truncated (DataError).
  std::optional<TarFile> Next();

 private:
  struct Header;

  Header ReadHeader() const;
  Header ReadFileHeader();
  void RequireFileOrFolder(const Header& header) const;
  std::string ReadText(const Header& header, uint64_t max_bytes) const;
  void ReadPaxHeader(const Header& header);
  void Skip(const Header& header);
  [[noreturn]] void Fail(const std::string& what) const;

  const Source& source_;
  uint64_t position_;  // of the next header
  uint64_t end_;       // of the archive in the source (exclusive)
  // An extension header (GNU long name, pax) sets these for the file that follows it.
  std::string long_name_;
  std::optional<uint64_t> long_size_;
};

}  // namespace carole::io
