#include "io/archives/npz.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>

#include "io/archives/inflate.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// Record signatures and sizes of the zip format (PKWARE's APPNOTE.TXT, section 4.3).
constexpr uint32_t kEntryMagic = 0x02014b50, kLocalMagic = 0x04034b50;
constexpr size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
constexpr size_t kMaxComment = 0xffff;
constexpr uint16_t kEncrypted = 1, kStored = 0, kDeflated = 8;
constexpr uint32_t kMaxBytes = uint32_t{1} << 30;      // an array's largest size
constexpr uint32_t kMaxDirectory = uint32_t{1} << 20;  // enough for thousands of arrays

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
constexpr std::string_view kNpyMagic = "\x93NUMPY";

[[noreturn]] void ThrowDamage(const std::string& name, const std::string& what) {
  throw DataError(fmt::format("[io.npz] {}: {}", name, what));
}

// Returns the value of `key` in the Python dictionary of a .npy header: the text up to the
// character `end`. Returns an empty text if the key is missing.
std::string_view ValueOf(std::string_view header, std::string_view key, char end) {
  const std::string start = fmt::format("'{}': ", key);
  const size_t at = header.find(start);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + start.size());
  return rest.substr(0, std::min(rest.find(end), rest.size()));
}

// Parses "(60000, 28, 28" (the closing parenthesis is already cut off). Returns an empty shape if a
// size is not a number from 1 to kMaxBytes.
std::vector<int64_t> ParseShape(std::string_view text) {
  std::vector<int64_t> shape;
  if (!text.starts_with('(')) return {};
  text.remove_prefix(1);
  while (!text.empty()) {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 1 || size > kMaxBytes) return {};
    shape.push_back(size);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
  }
  return shape;
}

// The header of a .npy file. The file holds: the magic text, a version of 2 bytes, the dictionary's
// length (2 bytes in version 1, 4 in later versions), the dictionary, then the elements.
struct NpyHeader {
  std::string_view text;  // the Python dictionary that describes the array
  size_t end = 0;         // offset of the elements
};
NpyHeader ReadNpyHeader(const std::string& name, std::string_view bytes) {
  constexpr size_t kVersion = kNpyMagic.size();
  if (bytes.size() < kVersion + 6 || !bytes.starts_with(kNpyMagic))
    ThrowDamage(name, "not a .npy file: the magic text is missing");
  const bool is_short = bytes[kVersion] == 1;
  const size_t begin = kVersion + (is_short ? 4 : 6);
  const char* length_at = bytes.data() + kVersion + 2;
  const size_t length =
      is_short ? LoadLittleEndian<uint16_t>(length_at) : LoadLittleEndian<uint32_t>(length_at);
  if (length > bytes.size() - begin)
    ThrowDamage(name, "damaged .npy header: it does not end within the file");
  return {.text = bytes.substr(begin, length), .end = begin + length};
}

}  // namespace

ByteArray ParseNpy(const std::string& name, std::string bytes, size_t rank) {
  const NpyHeader header = ReadNpyHeader(name, bytes);
  const std::string_view type = ValueOf(header.text, "descr", ',');
  const std::string_view order = ValueOf(header.text, "fortran_order", ',');
  if ((type != "'|u1'" && type != "'u1'") || order != "False") {
    ThrowDamage(
        name,
        fmt::format("unsupported array: got type {} and fortran_order {}, want uint8 and False",
                    type, order));
  }
  const std::string_view text = ValueOf(header.text, "shape", ')');
  ByteArray result{.shape = ParseShape(text), .bytes = {}};
  if (result.shape.size() != rank) {
    ThrowDamage(name, fmt::format("wrong shape: got {}), want {} sizes of 1 or more", text, rank));
  }
  uint64_t elements = 1;
  for (int64_t size : result.shape) elements = std::min<uint64_t>(elements * size, kMaxBytes);
  if (bytes.size() - header.end != elements) {
    ThrowDamage(name,
                fmt::format("wrong size: got {} bytes of elements, want as many as shape {}) has",
                            bytes.size() - header.end, text));
  }
  bytes.erase(0, header.end);
  result.bytes = std::move(bytes);
  return result;
}

NpzFile::NpzFile(std::unique_ptr<Source> file) : file_(std::move(file)) {
  const auto size = file_->size();
  if (!size || *size < kEndBytes) Fail("too short for an .npz file");
  ReadDirectory(*size);
}

void NpzFile::Fail(const std::string& what) const { ThrowDamage(name(), what); }

std::string NpzFile::ReadPart(uint64_t offset, uint64_t bytes) const {
  if (offset > *file_->size() || bytes > *file_->size() - offset)
    Fail(fmt::format("truncated file: want {} bytes from byte {} on; re-copy the file", bytes,
                     offset));
  std::string part(bytes, '\0');
  const size_t got = file_->ReadAt(offset, part);
  if (got != bytes)
    Fail(fmt::format("file changed while it was read: got {} bytes, want {}", got, bytes));
  return part;
}

// Finds the end-of-central-directory record and reads the directory. The record is at the end of
// the file; only an archive comment of any text may follow it.
void NpzFile::ReadDirectory(uint64_t size) {
  const uint64_t tail_bytes = std::min<uint64_t>(size, kEndBytes + kMaxComment);
  const std::string tail = ReadPart(size - tail_bytes, tail_bytes);
  const size_t end = tail.rfind("PK\x05\x06", tail_bytes - kEndBytes);
  if (end == std::string::npos)
    Fail("no end-of-directory record of a zip archive; is this an .npz file, and is it complete?");
  const char* record = tail.data() + end;
  const auto count = LoadLittleEndian<uint16_t>(record + 10);
  const auto bytes = LoadLittleEndian<uint32_t>(record + 12),
             offset = LoadLittleEndian<uint32_t>(record + 16);
  if (bytes > kMaxDirectory)
    Fail(fmt::format("zip directory too large: got {} bytes, want at most {}", bytes,
                     kMaxDirectory));
  const std::string directory = ReadPart(offset, bytes);
  std::string_view left = directory;
  for (int i = 0; i < count; ++i) {
    if (left.size() < kEntryBytes || LoadLittleEndian<uint32_t>(left.data()) != kEntryMagic)
      Fail(fmt::format("damaged entry {} of the zip directory; re-copy the file", i));
    const auto name = LoadLittleEndian<uint16_t>(left.data() + 28);
    const size_t whole = kEntryBytes + name + LoadLittleEndian<uint16_t>(left.data() + 30) +
                         LoadLittleEndian<uint16_t>(left.data() + 32);
    if (left.size() < whole)
      Fail(fmt::format("damaged entry {} of the zip directory; re-copy the file", i));
    if ((LoadLittleEndian<uint16_t>(left.data() + 8) & kEncrypted) != 0)
      Fail("encrypted archive; want one that is not encrypted");
    members_.push_back({.name = std::string(left.substr(kEntryBytes, name)),
                        .method = LoadLittleEndian<uint16_t>(left.data() + 10),
                        .crc = LoadLittleEndian<uint32_t>(left.data() + 16),
                        .compressed_bytes = LoadLittleEndian<uint32_t>(left.data() + 20),
                        .bytes = LoadLittleEndian<uint32_t>(left.data() + 24),
                        .header_offset = LoadLittleEndian<uint32_t>(left.data() + 42)});
    left.remove_prefix(whole);
  }
}

// Returns the uncompressed bytes of a member. Sizes come from the directory, not from the local
// header: NumPy stores those of the local header in an extra field (zip64).
std::string NpzFile::Unpack(const Member& member) const {
  const std::string local = ReadPart(member.header_offset, kLocalBytes);
  if (LoadLittleEndian<uint32_t>(local.data()) != kLocalMagic)
    Fail(fmt::format("{}: damaged header at byte {}; re-copy the file", member.name,
                     member.header_offset));
  if (member.bytes > kMaxBytes)
    Fail(fmt::format("{}: too large: got {} bytes, want at most {}", member.name, member.bytes,
                     kMaxBytes));
  std::string bytes = ReadPart(uint64_t{member.header_offset} + kLocalBytes +
                                   LoadLittleEndian<uint16_t>(local.data() + 26) +
                                   LoadLittleEndian<uint16_t>(local.data() + 28),
                               member.compressed_bytes);
  if (member.method == kDeflated) {
    const auto inflated =
        InflateRaw(std::make_unique<MemorySource>(name() + ": " + member.name, std::move(bytes)));
    bytes = ReadAll(*inflated, member.bytes);
  } else if (member.method != kStored) {
    Fail(fmt::format("{}: unsupported compression: got method {}, want 0 (stored) or 8 (deflated)",
                     member.name, member.method));
  }
  if (bytes.size() != member.bytes)
    Fail(fmt::format("{}: wrong size: got {} bytes, want {}", member.name, bytes.size(),
                     member.bytes));
  const auto crc = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
  if (crc != member.crc)
    Fail(fmt::format("{}: checksum mismatch: got {:#010x}, want {:#010x}; re-copy the file",
                     member.name, crc, member.crc));
  return bytes;
}

ByteArray NpzFile::Read(std::string_view array, size_t rank) const {
  const std::string want = fmt::format("{}.npy", array);
  for (const Member& member : members_) {
    if (member.name == want) return ParseNpy(name() + ": " + want, Unpack(member), rank);
  }
  Fail(fmt::format("no member {} in this archive", want));
}

}  // namespace carole::io
