// CheckExample() of verify.h.
#include <fmt/format.h>

#include <array>

#include "io/datasets/verify.h"
#include "io/image/image.h"
#include "io/records/boxes.h"
#include "io/records/example.h"
#include "io/records/raw_pixels.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// Boxes inside the picture, and as many labels for them, if any.
void CheckBoxes(std::string_view example, const FeatureQuery& labels) {
  const size_t num_boxes = ReadBoxes(example).size();
  const size_t num_labels = AllInt64(labels).size();
  if (num_labels != 0 && num_labels != num_boxes)
    throw DataError(fmt::format("{}: got {} labels, want {}, one for each box", labels.key,
                                num_labels, num_boxes));
}

// Where the record says how large its picture is, it must be so.
void CheckSize(const FeatureQuery& query, int size) {
  const auto stored = OnlyInt64(query);
  if (stored && *stored != size)
    throw DataError(
        fmt::format("{}: got {}, want {} as the picture has", query.key, *stored, size));
}

}  // namespace

int64_t CheckExample(std::string_view example, const DatasetEntry* dataset, int num_classes,
                     Image* image) {
  enum Key { kEncoded, kFormat, kHeight, kWidth, kLabel, kBoxLabel, kNumKeys };
  std::array<FeatureQuery, kNumKeys> found = {{{"image/encoded"},
                                               {"image/format"},
                                               {"image/height"},
                                               {"image/width"},
                                               {"image/class/label"},
                                               {"image/object/bbox/label"}}};
  FindFeatures(example, found);
  const StoredPicture stored = ReadStoredPicture(found);
  const auto label = OnlyInt64(found[kLabel]);
  if (!label) throw DataError("key missing: got no image/class/label");
  if (dataset != nullptr && (*label < dataset->label_of_first || *label >= num_classes)) {
    throw DataError(fmt::format("image/class/label: out of range: got {}, want {} to {}", *label,
                                dataset->label_of_first, num_classes - 1));
  }
  CheckBoxes(example, found[kBoxLabel]);
  const int channels = dataset != nullptr ? dataset->channels : 3;
  if (FindRawPixels(stored, RawPixelsOf(dataset), channels)) return *label;
  DecodeImage(stored.encoded, channels, image, true);
  CheckSize(found[kHeight], image->height);
  CheckSize(found[kWidth], image->width);
  return *label;
}

}  // namespace carole::io
