// Source and Sink: reading and writing bytes, in a file or in memory. Tests of file formats use
// memory, so that they can damage single bytes.
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

// Returns the little-endian number at `bytes`, which need not be aligned.
template <typename T>
T LoadLittleEndian(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));  // x86-64 is little-endian
  return value;
}

// Appends `value` as a little-endian number.
template <typename T>
void AppendLittleEndian(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// Bytes that can be read at any offset. Const calls are thread-safe, unless a subclass says that
// they are not.
class Source {
 public:
  virtual ~Source() = default;

  // The name for errors. For a file it is the path.
  virtual const std::string& name() const = 0;

  // The number of bytes; nullopt if it is known only at the end (a compressed stream).
  virtual std::optional<uint64_t> size() const = 0;

  // Reads bytes from `offset` on into `out`. Returns how many it read: fewer than out.size() only
  // at the end of the source. Throws DiskError, or DataError if a compressed stream is damaged.
  virtual size_t ReadAt(uint64_t offset, std::span<char> out) const = 0;

  // Hints for the page cache (posix_fadvise), which may do nothing: reads will come in random
  // order; these bytes will be read soon.
  virtual void ExpectRandomReads() const {}
  virtual void WillNeed(uint64_t /*offset*/, uint64_t /*length*/) const {}
};

// Opens a file for reading with pread. Throws DiskError if it cannot be opened or is not a regular
// file.
std::unique_ptr<Source> OpenFile(const std::filesystem::path& path);

// A source in memory. It owns its bytes.
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

// Returns the content of a source. Throws DataError if it has more than max_bytes.
std::string ReadAll(const Source& source, uint64_t max_bytes);

// Copies the content of a file. The copy is durable and appears atomically. Throws DiskError.
void CopyFile(const std::filesystem::path& from, const std::filesystem::path& to);

// A file that is written from front to back and appears under its name atomically.
class Sink {
 public:
  virtual ~Sink() = default;
  // Throws DiskError.
  virtual void Append(std::string_view bytes) = 0;
  // Ends writing and makes the content durable, under a temporary name. Commit() does this too.
  // Call it first if several files must be complete before one of them appears. Throws DiskError.
  virtual void Prepare() {}
  // Makes the content durable and visible. A sink that is destroyed without Commit() leaves no
  // file. Throws DiskError.
  virtual void Commit() = 0;
  // Removes an older file of the same name, durably. Throws DiskError.
  virtual void RemoveOld() {}
};

// Commits files that belong together, such as data and their index. Readers open the last one
// first; it is the index. After a crash, new files are never paired with an old index: either all
// old files are there, or all new ones, or the index is missing. Throws DiskError. If not all
// content could be written, the old files stay.
void CommitTogether(std::span<const std::unique_ptr<Sink>> files);

// Returns a sink that writes a file. It writes to a hidden temporary file in the same folder.
// Commit() renames it to `path` (CommitFile() in disk.h). Throws DiskError if the temporary file
// cannot be created, UsageError as RejectSpecialFile() does.
std::unique_ptr<Sink> CreateFile(const std::filesystem::path& path);

// A sink that appends to `out`, which must outlive it.
class MemorySink : public Sink {
 public:
  explicit MemorySink(std::string* out) : out_(out) {}
  void Append(std::string_view bytes) override { out_->append(bytes); }
  void Commit() override {}

 private:
  std::string* out_;
};

}  // namespace carole
