// Images that records hold as they are, without a file format.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "io/datasets.h"
#include "io/example.h"
#include "io/image.h"

namespace carole::io {

// What a record says of its picture.
struct StoredPicture {
  std::string_view encoded;                // image/encoded
  std::optional<std::string_view> format;  // image/format
  FeatureQuery height, width;              // image/height, image/width: only bare pixels need them
};

// `found`: the queries of those four features, in that order; there may be more behind them. Throws
// DataError when there is no picture.
StoredPicture ReadStoredPicture(std::span<const FeatureQuery> found);

// The view of bare pixels: those whose format is raw or RAW, or that have none, and the right
// number of bytes, in a data set where this means the same. Their size is that of the record, else
// the data set's. nullopt: encoded is an image file. dataset may be null. Throws DataError when raw
// bytes are not height * width * channels.
std::optional<ImageView> BarePixels(const StoredPicture& stored, const DatasetEntry* dataset,
                                    int channels);

}  // namespace carole::io
