// Decompression: wraps a gzip (RFC 1952) or zlib (RFC 1950) stream in a Source that gives the
// inflated bytes.
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

// Whether the source begins with gzip's magic number.
bool IsGzip(const Source& source);

// Returns Inflate(source) if IsGzip(source), otherwise `source` itself.
std::unique_ptr<Source> InflateIfGzip(std::unique_ptr<Source> source);

}  // namespace carole::io
