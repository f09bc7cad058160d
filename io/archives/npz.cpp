#include "io/archives/npz.h"

#include <fmt/format.h>
#include <zip.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

constexpr size_t kMinFile = 22;  // the size of an empty zip archive
constexpr uint64_t kMaxFile = uint64_t{1} << 32;
constexpr uint32_t kMaxArray = uint32_t{1} << 30;
constexpr size_t kPiece = size_t{1} << 20;  // bytes of a member that are inflated at once

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
// size is not a number from 1 to kMaxArray.
std::vector<int64_t> ParseShape(std::string_view text) {
  std::vector<int64_t> shape;
  if (!text.starts_with('(')) return {};
  text.remove_prefix(1);
  while (!text.empty()) {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 1 || size > kMaxArray) return {};
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

// A libzip error. The destructor frees its text.
class ZipError {
 public:
  ZipError() { zip_error_init(&error_); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;
  ~ZipError() { zip_error_fini(&error_); }

  zip_error_t* get() { return &error_; }
  int code() const { return zip_error_code_zip(&error_); }
  const char* text() { return zip_error_strerror(&error_); }

 private:
  zip_error_t error_;
};

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
  for (int64_t size : result.shape) elements = std::min<uint64_t>(elements * size, kMaxArray);
  if (bytes.size() - header.end != elements) {
    ThrowDamage(name,
                fmt::format("wrong size: got {} bytes of elements, want as many as shape {}) has",
                            bytes.size() - header.end, text));
  }
  bytes.erase(0, header.end);
  result.bytes = std::move(bytes);
  return result;
}

void NpzFile::CloseZip::operator()(zip* archive) const { zip_discard(archive); }

NpzFile::NpzFile(std::unique_ptr<Source> file)
    : name_(file->name()), bytes_(ReadAll(*file, kMaxFile)) {
  if (bytes_.size() < kMinFile) Fail("too short for an .npz file");
  ZipError error;
  zip_source_t* source = zip_source_buffer_create(bytes_.data(), bytes_.size(), 0, error.get());
  CAROLE_CHECK(source != nullptr, "zip_source_buffer_create failed");
  archive_.reset(zip_open_from_source(source, ZIP_RDONLY, error.get()));
  if (archive_ != nullptr) return;
  zip_source_free(source);
  if (error.code() == ZIP_ER_NOZIP)
    Fail("no end-of-directory record of a zip archive; is this an .npz file, and is it complete?");
  Fail(fmt::format("damaged zip directory ({}); re-copy the file", error.text()));
}

void NpzFile::Fail(const std::string& what) const { ThrowDamage(name_, what); }

std::string NpzFile::Unpack(const std::string& member) const {
  const auto fail = [&](const std::string& what) { Fail(fmt::format("{}: {}", member, what)); };
  zip_stat_t claimed;  // what the archive's directory says about the member
  if (zip_stat(archive_.get(), member.c_str(), ZIP_FL_ENC_RAW, &claimed) != 0)
    Fail(fmt::format("no member {} in this archive", member));
  if (claimed.encryption_method != ZIP_EM_NONE)
    Fail("encrypted archive; want one that is not encrypted");
  if (claimed.size > kMaxArray)
    fail(fmt::format("too large: got {} bytes, want at most {}", claimed.size, kMaxArray));
  if (claimed.comp_method != ZIP_CM_STORE && claimed.comp_method != ZIP_CM_DEFLATE) {
    fail(fmt::format("unsupported compression: got method {}, want 0 (stored) or 8 (deflated)",
                     claimed.comp_method));
  }
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(
      zip_fopen_index(archive_.get(), claimed.index, 0), zip_fclose);
  if (file == nullptr) fail(fmt::format("{}; re-copy the file", zip_strerror(archive_.get())));
  // The size is only a claim, so memory grows with the bytes that are really there.
  std::string bytes;
  for (;;) {
    const size_t start = bytes.size();
    bytes.resize(start + kPiece);
    const zip_int64_t got = zip_fread(file.get(), bytes.data() + start, kPiece);
    bytes.resize(start + static_cast<size_t>(std::max<zip_int64_t>(got, 0)));
    if (got < 0) {
      if (zip_error_code_zip(zip_file_get_error(file.get())) == ZIP_ER_CRC) {
        const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
        fail(fmt::format("checksum mismatch: got {:#010x}, want {:#010x}; re-copy the file", crc,
                         claimed.crc));
      }
      fail(fmt::format("byte {}: {}; re-copy the file", start, zip_file_strerror(file.get())));
    }
    if (got == 0 || bytes.size() > claimed.size) break;
  }
  if (bytes.size() != claimed.size)
    fail(fmt::format("wrong size: got {} bytes, want {}", bytes.size(), claimed.size));
  return bytes;
}

ByteArray NpzFile::Read(std::string_view array, size_t rank) const {
  const std::string member = fmt::format("{}.npy", array);
  return ParseNpy(fmt::format("{}: {}", name_, member), Unpack(member), rank);
}

}  // namespace carole::io
