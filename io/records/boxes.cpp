#include "io/records/boxes.h"

#include <fmt/format.h>

#include <array>

#include "io/records/example.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

// Checks a box's extent in one direction, in fractions of the image.
void CheckSide(const FeatureQuery& query, size_t box, float min, float max) {
  if (min >= 0 && min <= max && max <= 1) return;
  throw DataError(
      fmt::format("{}: box {} outside the image: got {} to {}, want 0 <= min <= max <= 1",
                  query.key, box, min, max));
}

}  // namespace

std::vector<Box> ReadBoxes(std::string_view example) {
  enum Side { kXmin, kXmax, kYmin, kYmax, kNumSides };
  std::array<FeatureQuery, kNumSides> found = {{{"image/object/bbox/xmin"},
                                                {"image/object/bbox/xmax"},
                                                {"image/object/bbox/ymin"},
                                                {"image/object/bbox/ymax"}}};
  FindFeatures(example, found);
  std::array<std::vector<float>, kNumSides> values;
  for (size_t s = 0; s < values.size(); ++s) {
    values[s] = AllFloats(found[s]);
    if (values[s].size() == values[0].size()) continue;
    throw DataError(fmt::format("{}: wrong number of boxes: got {}, want {} as in {}", found[s].key,
                                values[s].size(), values[0].size(), found[0].key));
  }
  std::vector<Box> boxes(values[0].size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    boxes[i] = {values[kYmin][i], values[kXmin][i], values[kYmax][i], values[kXmax][i]};
    CheckSide(found[kXmin], i, boxes[i].xmin, boxes[i].xmax);
    CheckSide(found[kYmin], i, boxes[i].ymin, boxes[i].ymax);
  }
  return boxes;
}

}  // namespace carole::io
