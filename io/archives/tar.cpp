#include "io/archives/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "src/core/divide_up.h"
#include "src/core/error.h"
#include "src/core/text/parse_number.h"

namespace carole::io {
namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 60;  // keeps sums of offsets from overflowing
constexpr uint64_t kMaxNameBytes = 64 << 10;
constexpr uint64_t kMaxPaxBytes = 1 << 20;

// Returns a text field of a header, which ends at the first NUL or is full.
std::string_view Field(std::string_view block, size_t offset, size_t size) {
  const std::string_view field = block.substr(offset, size);
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

// Parses a number field: octal digits between blanks, or GNU's big-endian binary form, which has
// the top bit set. Returns nullopt if the field is neither.
std::optional<uint64_t> ParseField(std::string_view field) {
  uint64_t value = 0;
  if ((static_cast<uint8_t>(field[0]) & 0x80) != 0) {
    for (size_t i = 0; i < field.size(); ++i) {
      const uint8_t byte = static_cast<uint8_t>(field[i]) & (i == 0 ? 0x7f : 0xff);
      if (value > kMaxFileBytes >> 8) return std::nullopt;
      value = value << 8 | byte;
    }
    return value;
  }
  const size_t start = std::min(field.find_first_not_of(' '), field.size());
  const char* end = field.data() + field.size();
  const auto [after, error] = std::from_chars(field.data() + start, end, value, 8);
  if (error != std::errc() || (after != end && *after != ' ' && *after != '\0'))
    return std::nullopt;
  return value;
}

// The header's checksum is the sum of its bytes, with blanks in place of the checksum field.
bool HasValidChecksum(std::string_view block) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<uint8_t>(block[i]);
  return ParseField(block.substr(148, 8)) == sum;
}

// Whether unpacking a file of this path would write outside the folder.
bool LeavesFolder(std::string_view path) {
  if (path.starts_with('/')) return true;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    if (path.substr(start, end - start) == "..") return true;
    start = end + 1;
  }
  return false;
}

std::string_view TypeName(char type) {
  switch (type) {
    case '1':
      return "a hard link";
    case '2':
      return "a symbolic link";
    case '3':
    case '4':
    case '6':
      return "a device";
    case 'S':
      return "a sparse file";
    default:
      return "an unknown type";
  }
}

}  // namespace

struct TarReader::Header {
  std::string name;
  uint64_t bytes = 0;
  char type = '0';
  bool is_end = false;

  bool is_folder() const { return type == '5' || name.ends_with('/') || name.empty(); }
};

TarReader::TarReader(const Source& source, uint64_t begin, uint64_t end)
    : source_(source), position_(begin), end_(end) {
  if (end_ == 0) end_ = source.size().value_or(std::numeric_limits<uint64_t>::max());
}

void TarReader::Fail(const std::string& what) const {
  throw DataError(
      fmt::format("[io.tar] {}: header at byte {}: {}", source_.name(), position_, what));
}

TarReader::Header TarReader::ReadHeader() const {
  std::array<char, kBlock> bytes;
  const uint64_t room = end_ - std::min(position_, end_);
  const size_t got = source_.ReadAt(position_, std::span(bytes).first(std::min(kBlock, room)));
  if (got < kBlock) {
    Fail(fmt::format(
        "truncated archive: got {} bytes to the end, want {} (a header or the end mark); "
        "re-copy the archive",
        got, kBlock));
  }
  const std::string_view block(bytes.data(), kBlock);
  if (block.find_first_not_of('\0') == std::string_view::npos) return {.is_end = true};
  if (!HasValidChecksum(block))
    Fail("checksum mismatch; is this a tar archive, and is it complete?");
  Header header{.name = std::string(Field(block, 0, 100)), .type = block[156]};
  const auto size = ParseField(block.substr(124, 12));
  if (!size || *size > kMaxFileBytes) Fail("invalid size: want a number of bytes from 0 to 2^60");
  header.bytes = *size;
  // POSIX headers have the first part of a long path at byte 345. GNU's own headers, whose magic is
  // "ustar  ", store times there.
  if (block.substr(257, 6) == std::string_view("ustar\0", 6)) {
    const std::string_view prefix = Field(block, 345, 155);
    if (!prefix.empty()) header.name = fmt::format("{}/{}", prefix, header.name);
  }
  return header;
}

std::string TarReader::ReadText(const Header& header, uint64_t max_bytes) const {
  if (header.bytes > max_bytes)
    Fail(fmt::format("extended header too long: got {} bytes, want at most {}", header.bytes,
                     max_bytes));
  std::string text(header.bytes, '\0');
  const uint64_t start = position_ + kBlock;
  const uint64_t room = end_ - std::min(start, end_);
  const size_t got = source_.ReadAt(start, std::span(text).first(std::min(header.bytes, room)));
  if (got < text.size())
    Fail(fmt::format("truncated archive: got {} bytes to the end, want {}; re-copy the archive",
                     got, text.size()));
  return text;
}

// A pax header consists of records "LENGTH KEY=VALUE\n"; LENGTH counts the whole record.
void TarReader::ReadPaxHeader(const Header& header) {
  const std::string text = ReadText(header, kMaxPaxBytes);
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t length = 0;
    const auto [after, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const size_t digits = static_cast<size_t>(after - rest.data());
    if (error != std::errc() || length > rest.size() || length < digits + 2 || *after != ' ' ||
        rest[length - 1] != '\n') {
      Fail("malformed pax record: want LENGTH KEY=VALUE");
    }
    const std::string_view record = rest.substr(digits + 1, length - digits - 2);
    rest.remove_prefix(length);
    const size_t equals = std::min(record.find('='), record.size());
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(std::min(equals + 1, record.size()));
    if (key.starts_with("GNU.sparse")) Fail("sparse file; make the archive without tar's --sparse");
    if (key == "path") long_name_ = value;
    if (key != "size") continue;
    const auto size = ParseNumber<uint64_t>(value);
    if (!size || *size > kMaxFileBytes) Fail("invalid size: want a number of bytes from 0 to 2^60");
    long_size_ = *size;
  }
}

void TarReader::Skip(const Header& header) {
  position_ += kBlock + DivideUp(header.bytes, kBlock) * kBlock;
}

// Reads the next header of a file or folder, and the extension headers before it. An extension
// header replaces fields of the header that follows it.
TarReader::Header TarReader::ReadFileHeader() {
  for (;;) {
    Header header = ReadHeader();
    switch (header.type) {
      case 'L':
        long_name_ = ReadText(header, kMaxNameBytes).c_str();
        break;
      case 'x':
        ReadPaxHeader(header);
        break;
      case 'K':  // a long target of a link, and links are refused
      case 'g':  // a comment on the whole archive
        break;
      default:
        if (header.is_end) return header;
        if (!long_name_.empty()) header.name = std::exchange(long_name_, {});
        if (long_size_) header.bytes = *std::exchange(long_size_, std::nullopt);
        while (header.name.starts_with("./")) header.name.erase(0, 2);
        return header;
    }
    Skip(header);
  }
}

void TarReader::RequireFileOrFolder(const Header& header) const {
  const std::string name = header.name.substr(0, 200);
  if (LeavesFolder(header.name))
    Fail(fmt::format("path leads out of the folder: got {}, want a relative path without \"..\"",
                     name));
  const bool is_file = header.type == '0' || header.type == '\0' || header.type == '7';
  if (!header.is_folder() && !is_file)
    Fail(fmt::format("{} is {}, want only files and folders", name, TypeName(header.type)));
  const uint64_t room = end_ - std::min(position_ + kBlock, end_);
  if (header.bytes > room) {
    Fail(fmt::format("truncated archive: {}: got {} bytes to the end, want {}; re-copy the archive",
                     name, room, header.bytes));
  }
}

std::optional<TarFile> TarReader::Next() {
  for (;;) {
    Header header = ReadFileHeader();
    if (header.is_end) return std::nullopt;
    RequireFileOrFolder(header);
    const uint64_t offset = position_ + kBlock;
    Skip(header);
    if (!header.is_folder())
      return TarFile{.name = std::move(header.name), .offset = offset, .bytes = header.bytes};
  }
}

}  // namespace carole::io
