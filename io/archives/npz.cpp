#include "io/archives/npz.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>

#include "io/archives/inflate.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// PKWARE's APPNOTE 4.3.
constexpr uint32_t kEntryMagic = 0x02014b50, kLocalMagic = 0x04034b50;
constexpr size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
constexpr size_t kMaxComment = 0xffff;
constexpr uint16_t kEncrypted = 1, kStored = 0, kDeflated = 8;
constexpr uint32_t kMaxBytes = uint32_t{1} << 30;      // of an array
constexpr uint32_t kMaxDirectory = uint32_t{1} << 20;  // bytes: thousands of arrays

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
constexpr std::string_view kNpyMagic = "\x93NUMPY";

[[noreturn]] void ThrowDamage(const std::string& name, const std::string& what) {
  throw DataError(fmt::format("[io.npz] {}: {}", name, what));
}

// The text of `key` in the Python dictionary of an array's header, up to `end`; empty when it is
// not there.
std::string_view ValueOf(std::string_view header, std::string_view key, char end) {
  const std::string start = fmt::format("'{}': ", key);
  const size_t at = header.find(start);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + start.size());
  return rest.substr(0, std::min(rest.find(end), rest.size()));
}

// "(60000, 28, 28" -> its numbers; empty when one is not a number of 1 to kMaxBytes.
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

// The dictionary that describes an array, and where its elements begin: behind magic, version and
// the dictionary's length, which has 2 bytes in version 1 and 4 since.
struct NpyHeader {
  std::string_view text;
  size_t end = 0;
};
NpyHeader ReadNpyHeader(const std::string& name, std::string_view bytes) {
  constexpr size_t kVersion = kNpyMagic.size();
  if (bytes.size() < kVersion + 6 || !bytes.starts_with(kNpyMagic))
    ThrowDamage(name, "is no .npy file");
  const bool is_short = bytes[kVersion] == 1;
  const size_t begin = kVersion + (is_short ? 4 : 6);
  const char* length_at = bytes.data() + kVersion + 2;
  const size_t length =
      is_short ? LoadLittle<uint16_t>(length_at) : LoadLittle<uint32_t>(length_at);
  if (length > bytes.size() - begin) ThrowDamage(name, "its header is damaged");
  return {.text = bytes.substr(begin, length), .end = begin + length};
}

}  // namespace

ByteArray ParseNpy(const std::string& name, std::string bytes, size_t rank) {
  const NpyHeader header = ReadNpyHeader(name, bytes);
  const std::string_view type = ValueOf(header.text, "descr", ',');
  const std::string_view order = ValueOf(header.text, "fortran_order", ',');
  if ((type != "'|u1'" && type != "'u1'") || order != "False") {
    ThrowDamage(name,
                fmt::format("got type {} and fortran_order {}, want uint8 and False", type, order));
  }
  const std::string_view text = ValueOf(header.text, "shape", ')');
  ByteArray result{.shape = ParseShape(text), .bytes = {}};
  if (result.shape.size() != rank) {
    ThrowDamage(name, fmt::format("wrong shape: got {}), want {} sizes of 1 or more", text, rank));
  }
  uint64_t elements = 1;
  for (int64_t size : result.shape) elements = std::min<uint64_t>(elements * size, kMaxBytes);
  if (bytes.size() - header.end != elements) {
    ThrowDamage(name, fmt::format("got {} bytes of elements, want the shape {})",
                                  bytes.size() - header.end, text));
  }
  bytes.erase(0, header.end);
  result.bytes = std::move(bytes);
  return result;
}

NpzFile::NpzFile(std::unique_ptr<Source> file) : file_(std::move(file)) {
  const auto size = file_->size();
  if (!size || *size < kEndBytes) Fail("is too short for an .npz file");
  ReadDirectory(*size);
}

void NpzFile::Fail(const std::string& what) const { ThrowDamage(name(), what); }

std::string NpzFile::ReadPart(uint64_t offset, uint64_t bytes) const {
  if (offset > *file_->size() || bytes > *file_->size() - offset)
    Fail(fmt::format("ends too early: want {} bytes from byte {} on; is it truncated?", bytes,
                     offset));
  std::string part(bytes, '\0');
  const size_t got = file_->ReadAt(offset, part);
  if (got != bytes) Fail(fmt::format("has become shorter while it was read: got {} bytes", got));
  return part;
}

// The end record is last, but for a comment of any text.
void NpzFile::ReadDirectory(uint64_t size) {
  const uint64_t tail_bytes = std::min<uint64_t>(size, kEndBytes + kMaxComment);
  const std::string tail = ReadPart(size - tail_bytes, tail_bytes);
  const size_t end = tail.rfind("PK\x05\x06", tail_bytes - kEndBytes);
  if (end == std::string::npos)
    Fail("has no end record of a zip archive: is it an .npz file, and is it whole?");
  const char* record = tail.data() + end;
  const auto count = LoadLittle<uint16_t>(record + 10);
  const auto bytes = LoadLittle<uint32_t>(record + 12), offset = LoadLittle<uint32_t>(record + 16);
  if (bytes > kMaxDirectory) Fail(fmt::format("has a directory of {} bytes", bytes));
  const std::string directory = ReadPart(offset, bytes);
  std::string_view left = directory;
  for (int i = 0; i < count; ++i) {
    if (left.size() < kEntryBytes || LoadLittle<uint32_t>(left.data()) != kEntryMagic)
      Fail(fmt::format("entry {} of the directory is damaged", i));
    const auto name = LoadLittle<uint16_t>(left.data() + 28);
    const size_t whole = kEntryBytes + name + LoadLittle<uint16_t>(left.data() + 30) +
                         LoadLittle<uint16_t>(left.data() + 32);
    if (left.size() < whole) Fail(fmt::format("entry {} of the directory is damaged", i));
    if ((LoadLittle<uint16_t>(left.data() + 8) & kEncrypted) != 0) Fail("is encrypted");
    members_.push_back({.name = std::string(left.substr(kEntryBytes, name)),
                        .method = LoadLittle<uint16_t>(left.data() + 10),
                        .crc = LoadLittle<uint32_t>(left.data() + 16),
                        .packed = LoadLittle<uint32_t>(left.data() + 20),
                        .bytes = LoadLittle<uint32_t>(left.data() + 24),
                        .header = LoadLittle<uint32_t>(left.data() + 42)});
    left.remove_prefix(whole);
  }
}

// The sizes of the local header are not used: NumPy leaves them to an extra field there.
std::string NpzFile::Unpack(const Member& member) const {
  const std::string local = ReadPart(member.header, kLocalBytes);
  if (LoadLittle<uint32_t>(local.data()) != kLocalMagic)
    Fail(fmt::format("{}: its header at byte {} is damaged", member.name, member.header));
  if (member.bytes > kMaxBytes)
    Fail(fmt::format("{}: got {} bytes, want at most {}", member.name, member.bytes, kMaxBytes));
  std::string bytes =
      ReadPart(uint64_t{member.header} + kLocalBytes + LoadLittle<uint16_t>(local.data() + 26) +
                   LoadLittle<uint16_t>(local.data() + 28),
               member.packed);
  if (member.method == kDeflated) {
    const auto inflated =
        InflateRaw(std::make_unique<MemorySource>(name() + ": " + member.name, std::move(bytes)));
    bytes = ReadAll(*inflated, member.bytes);
  } else if (member.method != kStored) {
    Fail(fmt::format("{}: packed by method {}, want stored or deflated", member.name,
                     member.method));
  }
  if (bytes.size() != member.bytes)
    Fail(fmt::format("{}: got {} bytes, want {}", member.name, bytes.size(), member.bytes));
  const auto crc = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
  if (crc != member.crc)
    Fail(fmt::format("{}: crc mismatch: got {:#010x}, want {:#010x}; re-copy the file", member.name,
                     crc, member.crc));
  return bytes;
}

ByteArray NpzFile::Read(std::string_view array, size_t rank) const {
  const std::string want = fmt::format("{}.npy", array);
  for (const Member& member : members_) {
    if (member.name == want) return ParseNpy(name() + ": " + want, Unpack(member), rank);
  }
  Fail(fmt::format("holds no {}", want));
}

}  // namespace carole::io
