// Gzip (RFC 1952), zlib (RFC 1950) and bare deflate (RFC 1951) streams as sources of their inflated
// bytes.
#pragma once

#include <memory>

#include "src/core/files/bytes.h"

namespace carole::io {

// The inflated bytes of `compressed`, which may be several gzip members back to back. Memory is
// bounded whatever the stream claims. Reading forward goes on where the last read ended; an earlier
// offset starts again at the front. Not thread-safe. Damage throws DataError.
std::unique_ptr<Source> Inflate(std::unique_ptr<Source> compressed);

// The same of one deflate stream without header and checksum, as zip archives hold it; `compressed`
// ends where it does.
std::unique_ptr<Source> InflateRaw(std::unique_ptr<Source> compressed);

// True when the file begins as gzip does.
bool IsGzip(const Source& source);

// `source`, or its inflated bytes when it begins as gzip does.
std::unique_ptr<Source> InflateIfGzip(std::unique_ptr<Source> source);

}  // namespace carole::io
