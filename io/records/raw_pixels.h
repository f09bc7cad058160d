// Images that records hold as they are, without a file format.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "io/image/image.h"
#include "io/records/example.h"

namespace carole::io {

// How a data set stores raw pixels. The default fits data sets that always name the format.
struct RawPixelFormat {
  int image_size = 0;           // height and width of images whose record does not say; 0: it must
  bool without_format = false;  // whether a record without image/format holds raw pixels
};

// What a record says of its picture.
struct StoredPicture {
  std::string_view encoded;                // image/encoded
  std::optional<std::string_view> format;  // image/format
  FeatureQuery height, width;              // image/height, image/width: only bare pixels need them
};

// `found`: the queries of those four features, in that order; there may be more behind them. Throws
// DataError when there is no picture.
StoredPicture ReadStoredPicture(std::span<const FeatureQuery> found);

// A view of the record's raw pixels, or nullopt if `stored.encoded` is an image file. Pixels are
// raw if image/format is raw or RAW, or if the format is missing, `format` allows that, and the
// number of bytes fits. Height and width are those of the record, else those of `format`. Throws
// DataError if there are not height * width * channels bytes.
std::optional<ImageView> FindRawPixels(const StoredPicture& stored, const RawPixelFormat& format,
                                       int channels);

}  // namespace carole::io
