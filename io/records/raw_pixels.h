// Raw pixels stored directly in a record, without an image file format.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "io/image/image.h"
#include "io/records/example.h"

namespace carole::io {

// How a data set stores raw pixels. The default suits data sets whose records always have
// image/format.
struct RawPixelFormat {
  // Height and width of an image whose record does not hold them; 0: every record must hold them.
  int image_size = 0;
  bool without_format = false;  // whether a record without image/format holds raw pixels
};

// The features of a record that describe its image. The views point into the record.
struct StoredImage {
  std::string_view encoded;                // image/encoded
  std::optional<std::string_view> format;  // image/format
  FeatureQuery height, width;              // image/height, image/width: only raw pixels need them
};

// Reads the image's features. `found` holds the answered queries of image/encoded, image/format,
// image/height and image/width in this order; more queries may follow. Throws DataError if the
// record has no image.
StoredImage ReadStoredImage(std::span<const FeatureQuery> found);

// Returns a view of the record's raw pixels, or nullopt if `stored.encoded` is an image file.
// Pixels are raw if image/format is "raw" or "RAW". They are also raw if the format is missing,
// `format` allows that, and the number of bytes fits. Height and width come from the record, or
// else from `format`. Throws DataError if there are not height * width * channels bytes.
std::optional<ImageView> FindRawPixels(const StoredImage& stored, const RawPixelFormat& format,
                                       int channels);

}  // namespace carole::io
