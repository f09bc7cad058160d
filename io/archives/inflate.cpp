#include "io/archives/inflate.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// zlib's windowBits: a window of 2^15 bytes. +32 detects a gzip or zlib header.
constexpr int kGzipOrZlib = 15 + 32;

class InflateSource : public Source {
 public:
  explicit InflateSource(std::unique_ptr<Source> compressed)
      : compressed_(std::move(compressed)), input_(size_t{64} << 10) {
    CAROLE_CHECK(inflateInit2(&stream_, kGzipOrZlib) == Z_OK, "inflateInit2 failed");
  }
  InflateSource(const InflateSource&) = delete;
  InflateSource& operator=(const InflateSource&) = delete;
  ~InflateSource() override { inflateEnd(&stream_); }

  const std::string& name() const override { return compressed_->name(); }
  std::optional<uint64_t> size() const override { return std::nullopt; }

  size_t ReadAt(uint64_t offset, std::span<char> out) const override {
    if (offset < position_) Restart();
    char skipped[4096];
    while (position_ < offset) {
      const size_t step = std::min<uint64_t>(offset - position_, sizeof(skipped));
      if (Forward(std::span(skipped).first(step)) < step) return 0;
    }
    return Forward(out);
  }

 private:
  void Restart() const {
    inflateReset(&stream_);
    stream_.avail_in = 0;
    read_offset_ = position_ = 0;
    ended_ = false;
  }

  // Inflates the next bytes into `out` and returns their number. The number is less than out.size()
  // only at the end of the last gzip member.
  size_t Forward(std::span<char> out) const {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    size_t left = out.size();
    while (left > 0 && !ended_) {
      stream_.avail_out = static_cast<uInt>(std::min<size_t>(left, size_t{1} << 30));
      const uInt before = stream_.avail_out;
      Refill();
      if (stream_.avail_in == 0) Fail("truncated: the compressed stream does not end");
      const int status = inflate(&stream_, Z_NO_FLUSH);
      left -= before - stream_.avail_out;
      if (status == Z_STREAM_END) {
        Refill();
        ended_ = stream_.avail_in == 0;
        if (!ended_) inflateReset(&stream_);  // another gzip member follows
      } else if (status != Z_OK) {
        Fail(stream_.msg != nullptr ? stream_.msg : "damaged compressed data");
      }
    }
    position_ += out.size() - left;
    return out.size() - left;
  }

  void Refill() const {
    if (stream_.avail_in > 0) return;
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(compressed_->ReadAt(read_offset_, input_));
    read_offset_ += stream_.avail_in;
  }

  [[noreturn]] void Fail(const char* what) const {
    const std::string text =
        fmt::format("[io.inflate] {}: near byte {} of the compressed file: {}; re-copy the file",
                    name(), read_offset_ - stream_.avail_in, what);
    Restart();  // zlib's state is ahead of position_: the failed read inflated bytes already
    throw DataError(text);
  }

  std::unique_ptr<Source> compressed_;
  mutable std::vector<char> input_;
  mutable z_stream stream_{};
  mutable uint64_t read_offset_ = 0;  // next byte to read, in the compressed file
  mutable uint64_t position_ = 0;     // next byte to return, in the inflated stream
  mutable bool ended_ = false;
};

}  // namespace

std::unique_ptr<Source> Inflate(std::unique_ptr<Source> compressed) {
  return std::make_unique<InflateSource>(std::move(compressed));
}

bool IsGzip(const Source& source) {
  char magic[3] = {};  // the third byte is the compression method; deflate (8) is the only one
  return source.ReadAt(0, magic) == 3 && magic[0] == '\x1f' && magic[1] == '\x8b' &&
         magic[2] == '\x08';
}

std::unique_ptr<Source> InflateIfGzip(std::unique_ptr<Source> source) {
  return IsGzip(*source) ? Inflate(std::move(source)) : std::move(source);
}

}  // namespace carole::io
