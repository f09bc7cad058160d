// Decompression: wraps a gzip (RFC 1952), zlib (RFC 1950) or raw deflate (RFC 1951) stream in a
// Source that gives the inflated bytes.
#pragma once

#include <memory>

#include "src/core/files/bytes.h"

namespace carole::io {

// Returns the inflated bytes of a gzip or zlib stream; the stream's header tells which.
// `compressed` may hold several gzip members back to back: they are one stream. The result owns
// `compressed` and has no size().
//
// A read at or after the end of the previous read continues there. A read at an earlier offset
// inflates again from the beginning. Memory use is bounded, whatever the stream claims. Not
// thread-safe. Reads throw DataError if the stream is damaged or truncated.
std::unique_ptr<Source> Inflate(std::unique_ptr<Source> compressed);

// Like Inflate(), for one raw deflate stream: without header and checksum, as in a zip archive.
// `compressed` must end where the stream ends.
std::unique_ptr<Source> InflateRaw(std::unique_ptr<Source> compressed);

// Whether the source begins with gzip's magic number.
bool IsGzip(const Source& source);

// Returns Inflate(source) if IsGzip(source), otherwise `source` itself.
std::unique_ptr<Source> InflateIfGzip(std::unique_ptr<Source> source);

}  // namespace carole::io
