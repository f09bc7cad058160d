// Implements CheckExample() of verify.h.
#include <fmt/format.h>

#include <array>

#include "io/datasets/verify.h"
#include "io/image/exif.h"
#include "io/image/image.h"
#include "io/records/boxes.h"
#include "io/records/example.h"
#include "io/records/raw_pixels.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// Checks that boxes lie inside the image and that there is one label per box, or none at all.
void CheckBoxes(std::string_view example, const FeatureQuery& labels) {
  const size_t num_boxes = ReadBoxes(example).size();
  const size_t num_labels = AllInt64(labels).size();
  if (num_labels != 0 && num_labels != num_boxes)
    throw DataError(fmt::format("{}: wrong number of labels: got {}, want {}, one per box",
                                labels.key, num_labels, num_boxes));
}

// Checks the image's height or width, if the record holds it.
void CheckSize(const FeatureQuery& query, int size) {
  const auto stored = SingleInt64(query);
  if (stored && *stored != size)
    throw DataError(
        fmt::format("{}: wrong size: got {}, want {} as in the image", query.key, *stored, size));
}

}  // namespace

CheckedExample CheckExample(std::string_view example, const DatasetEntry* dataset, int num_classes,
                            Image* image) {
  enum Key { kEncoded, kFormat, kHeight, kWidth, kLabel, kBoxLabel, kNumKeys };
  std::array<FeatureQuery, kNumKeys> found = {{{"image/encoded"},
                                               {"image/format"},
                                               {"image/height"},
                                               {"image/width"},
                                               {"image/class/label"},
                                               {"image/object/bbox/label"}}};
  FindFeatures(example, found);
  const StoredImage stored = ReadStoredImage(found);
  const auto label = SingleInt64(found[kLabel]);
  if (!label) throw DataError("key missing: got no image/class/label");
  if (dataset != nullptr && (*label < dataset->first_label || *label >= num_classes)) {
    throw DataError(fmt::format("image/class/label: out of range: got {}, want {} to {}", *label,
                                dataset->first_label, num_classes - 1));
  }
  CheckBoxes(example, found[kBoxLabel]);
  const int channels = dataset != nullptr ? dataset->channels : 3;
  if (FindRawPixels(stored, RawPixelsOf(dataset), channels)) return {.label = *label};
  DecodeImage(stored.encoded, channels, image, true);
  CheckSize(found[kHeight], image->height);
  CheckSize(found[kWidth], image->width);
  return {.label = *label, .is_turned = ExifOrientation(stored.encoded) != 1};
}

}  // namespace carole::io
