// Sources and sinks of bytes: a file or memory behind one small interface, so that tests damage
// memory where the program reads files.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace carole {

// Little-endian numbers in byte strings.
template <typename T>
T LoadLittle(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));  // x86-64 is little-endian
  return value;
}

template <typename T>
void AppendLittle(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Bytes that can be read at any offset. Const calls are thread-safe unless the class says
// otherwise.
class Source {
 public:
  virtual ~Source() = default;

  // What errors call it: the file's path.
  virtual const std::string& name() const = 0;

  // Bytes in all; nullopt when only reading to the end tells (a compressed stream).
  virtual std::optional<uint64_t> size() const = 0;

  // Fills `out` from `offset` on. Returns the number of bytes read, fewer than asked for only at
  // the end. Throws DiskError, or DataError when a compressed stream is damaged.
  virtual size_t ReadAt(uint64_t offset, std::span<char> out) const = 0;

  // Hints, which may do nothing: reads will come in no order; these bytes will be read soon.
  virtual void ExpectRandomReads() const {}
  virtual void WillNeed(uint64_t /*offset*/, uint64_t /*length*/) const {}
};

// Opens a file for reading (pread). Throws DiskError when it cannot be opened or is no regular
// file.
std::unique_ptr<Source> OpenFile(const std::filesystem::path& path);

// Bytes in memory, owned.
class MemorySource : public Source {
 public:
  MemorySource(std::string name, std::string bytes)
      : name_(std::move(name)), bytes_(std::move(bytes)) {}

  const std::string& name() const override { return name_; }
  std::optional<uint64_t> size() const override { return bytes_.size(); }
  size_t ReadAt(uint64_t offset, std::span<char> out) const override;

 private:
  std::string name_;
  std::string bytes_;
};

// The whole of a source. Throws DataError when it is longer than max_bytes.
std::string ReadAll(const Source& source, uint64_t max_bytes);

// Copies a file's content; the copy becomes visible all at once. Throws DiskError.
void CopyFile(const std::filesystem::path& from, const std::filesystem::path& to);

// Bytes that are written front to back and become visible all at once.
class Sink {
 public:
  virtual ~Sink() = default;
  // Throws DiskError.
  virtual void Append(std::string_view bytes) = 0;
  // Ends writing: what was appended is now there, and safe against a crash. A sink that is
  // destroyed without Commit() leaves nothing behind. Throws DiskError.
  virtual void Commit() = 0;
};

// Writes to a hidden temporary name in the same folder; Commit() flushes, syncs and renames it to
// `path`. Throws DiskError when it cannot be created.
std::unique_ptr<Sink> CreateFile(const std::filesystem::path& path);

// Appends to `out`, which must outlive it.
class MemorySink : public Sink {
 public:
  explicit MemorySink(std::string* out) : out_(out) {}
  void Append(std::string_view bytes) override { out_->append(bytes); }
  void Commit() override {}

 private:
  std::string* out_;
};

}  // namespace carole
