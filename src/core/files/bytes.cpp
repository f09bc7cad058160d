#include "src/core/files/bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/core/error.h"
#include "src/core/files/disk.h"

namespace carole {
namespace {

constexpr std::string_view kTag = "io.bytes";

class FileSource : public Source {
 public:
  explicit FileSource(const std::filesystem::path& path)
      : name_(path.string()),
        // O_NONBLOCK: opening a pipe must not wait for a writer.
        file_(RetryIfInterrupted(
            [&] { return open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); })) {
    if (!file_.is_open()) ThrowDiskError(kTag, name_, "open", errno);
    struct stat info;
    if (fstat(file_.get(), &info) != 0) ThrowDiskError(kTag, name_, "read the size", errno);
    if (!S_ISREG(info.st_mode)) {
      throw DiskError(fmt::format(
          "[io.bytes] {}: not a regular file: got a folder, device or pipe, want a file", name_));
    }
    size_ = static_cast<uint64_t>(info.st_size);
  }

  const std::string& name() const override { return name_; }
  std::optional<uint64_t> size() const override { return size_; }

  size_t ReadAt(uint64_t offset, std::span<char> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t got = pread(file_.get(), out.data() + done, out.size() - done,
                                static_cast<off_t>(offset + done));
      if (got == 0) break;
      if (got < 0 && errno != EINTR) {
        ThrowDiskError(kTag, name_, fmt::format("read {} bytes at byte {}", out.size(), offset),
                       errno);
      }
      if (got > 0) done += static_cast<size_t>(got);
    }
    return done;
  }

  void ExpectRandomReads() const override { posix_fadvise(file_.get(), 0, 0, POSIX_FADV_RANDOM); }
  void WillNeed(uint64_t offset, uint64_t length) const override {
    posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(length),
                  POSIX_FADV_WILLNEED);
  }

 private:
  std::string name_;
  FileDescriptor file_;
  uint64_t size_ = 0;
};

class FileSink : public Sink {
 public:
  explicit FileSink(const std::filesystem::path& path) : path_(path) {
    RejectSpecialFile(kTag, path.string());
    RemoveAbandonedTemporaryFiles(path);
    file_ = CreateNewFile(
        kTag, [&] { return TemporaryNameOf(path); }, temporary_);
    buffer_.reserve(kBufferBytes);
  }

  ~FileSink() override {
    if (!committed_) unlink(temporary_.c_str());
  }

  void Append(std::string_view bytes) override {
    if (buffer_.size() + bytes.size() > kBufferBytes) Flush();
    if (bytes.size() >= kBufferBytes) {
      WriteOut(bytes);
    } else {
      buffer_.append(bytes);
    }
  }

  void Prepare() override {
    Flush();
    SyncFile(kTag, path_.string(), file_.get());
    prepared_ = true;
  }

  void Commit() override {
    if (!prepared_) Prepare();
    CommitSyncedFile(kTag, temporary_, path_.string());
    committed_ = true;
  }

  void RemoveOld() override { RemoveFileDurably(kTag, path_.string()); }

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;

  void Flush() {
    WriteOut(buffer_);
    buffer_.clear();
  }

  void WriteOut(std::string_view bytes) {
    if (const int error = WriteAt(file_.get(), bytes, written_))
      ThrowDiskError(kTag, path_.string(), "write", error);
    written_ += static_cast<int64_t>(bytes.size());
  }

  std::filesystem::path path_;
  std::string temporary_;
  FileDescriptor file_;
  std::string buffer_;
  int64_t written_ = 0;
  bool prepared_ = false;
  bool committed_ = false;
};

}  // namespace

std::unique_ptr<Source> OpenFile(const std::filesystem::path& path) {
  return std::make_unique<FileSource>(path);
}

size_t MemorySource::ReadAt(uint64_t offset, std::span<char> out) const {
  if (offset >= bytes_.size()) return 0;
  const size_t count = std::min<size_t>(out.size(), bytes_.size() - offset);
  std::memcpy(out.data(), bytes_.data() + offset, count);
  return count;
}

std::string ReadAll(const Source& source, uint64_t max_bytes) {
  std::string all;
  // If the size is known, read everything at once. If not, start with 1 MiB and grow: a small
  // compressed file must not make us allocate much memory.
  size_t piece = source.size() ? std::min(*source.size(), max_bytes) + 1 : size_t{1} << 20;
  for (;;) {
    const size_t start = all.size();
    all.resize(start + piece);
    const size_t got = source.ReadAt(start, std::span(all).subspan(start));
    all.resize(start + got);
    if (all.size() > max_bytes) {
      throw DataError(
          fmt::format("[io.bytes] {}: too large: got more than {} bytes, want at most {}",
                      source.name(), max_bytes, max_bytes));
    }
    if (got < piece) return all;
    piece = std::max(piece, start);
  }
}

void CopyFile(const std::filesystem::path& from, const std::filesystem::path& to) {
  const std::unique_ptr<Source> source = OpenFile(from);
  const std::unique_ptr<Sink> sink = CreateFile(to);
  std::string piece(size_t{1} << 20, '\0');
  for (uint64_t at = 0;; at += piece.size()) {
    piece.resize(source->ReadAt(at, piece));
    if (piece.empty()) break;
    sink->Append(piece);
  }
  sink->Commit();
}

std::unique_ptr<Sink> CreateFile(const std::filesystem::path& path) {
  return std::make_unique<FileSink>(path);
}

void CommitTogether(std::span<const std::unique_ptr<Sink>> files) {
  for (const std::unique_ptr<Sink>& file : files) file->Prepare();
  files.back()->RemoveOld();
  for (const std::unique_ptr<Sink>& file : files) file->Commit();
}

}  // namespace carole
