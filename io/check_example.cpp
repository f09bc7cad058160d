#include <fmt/format.h>

#include <array>

#include "io/bare_pixels.h"
#include "io/example.h"
#include "io/image.h"
#include "io/verify.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// An image/object/bbox list that holds another number of values than the first, or values outside.
void CheckBoxes(std::span<const FeatureQuery> sides, const FeatureQuery& labels) {
  std::array<std::vector<float>, 4> values;  // xmin, xmax, ymin, ymax
  for (size_t s = 0; s < values.size(); ++s) {
    values[s] = AllFloats(sides[s]);
    if (values[s].size() == values[0].size()) continue;
    throw DataError(fmt::format("{}: got {} boxes, want {} as in {}", sides[s].key,
                                values[s].size(), values[0].size(), sides[0].key));
  }
  const size_t num_labels = AllInt64(labels).size();
  if (num_labels != 0 && num_labels != values[0].size())
    throw DataError(fmt::format("{}: got {} labels, want {} as in {}", labels.key, num_labels,
                                values[0].size(), sides[0].key));
  for (size_t i = 0; i < values[0].size(); ++i) {
    for (size_t low : {0u, 2u}) {
      const float min = values[low][i];
      const float max = values[low + 1][i];
      if (min >= 0 && min <= max && max <= 1) continue;
      throw DataError(
          fmt::format("{}: box {} outside the picture: got {} to {}, want 0 to 1 in order",
                      sides[low].key, i, min, max));
    }
  }
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
  enum Key { kEncoded, kFormat, kHeight, kWidth, kLabel, kXmin, kXmax, kYmin, kYmax, kBoxLabel };
  std::array<FeatureQuery, 10> found = {{{"image/encoded"},
                                         {"image/format"},
                                         {"image/height"},
                                         {"image/width"},
                                         {"image/class/label"},
                                         {"image/object/bbox/xmin"},
                                         {"image/object/bbox/xmax"},
                                         {"image/object/bbox/ymin"},
                                         {"image/object/bbox/ymax"},
                                         {"image/object/bbox/label"}}};
  FindFeatures(example, found);
  const StoredPicture stored = ReadStoredPicture(found);
  const auto label = OnlyInt64(found[kLabel]);
  if (!label) throw DataError("key missing: got no image/class/label");
  if (dataset != nullptr && (*label < dataset->label_of_first || *label >= num_classes)) {
    throw DataError(fmt::format("image/class/label: out of range: got {}, want {} to {}", *label,
                                dataset->label_of_first, num_classes - 1));
  }
  CheckBoxes(std::span(found).subspan(kXmin, 4), found[kBoxLabel]);
  const int channels = dataset != nullptr ? dataset->channels : 3;
  if (BarePixels(stored, dataset, channels)) return *label;
  DecodeImage(stored.encoded, channels, image);
  CheckSize(found[kHeight], image->height);
  CheckSize(found[kWidth], image->width);
  return *label;
}

}  // namespace carole::io
