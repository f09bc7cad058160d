#include "src/export/common/preprocessing_steps.h"

#include <string_view>

#include "src/core/check.h"

namespace carole::exporting {
namespace {

struct Row {
  std::string_view name;
  Geometry geometry;
  bool truncates_sides = false;
};
constexpr Row kRows[] = {{"inception", Geometry::kCentralPart},
                         {"vgg", Geometry::kShorterSide},
                         {"imagenet_resnet", Geometry::kShorterSide, true},
                         {"lenet", Geometry::kCropOrPad},
                         {"cifarnet", Geometry::kCropOrPad},
                         {"mnist_keras", Geometry::kAsItIs}};

}  // namespace

PreprocessingSteps StepsOf(const io::PreprocessingEntry& entry, int64_t size,
                           int64_t image_channels, int64_t net_channels) {
  PreprocessingSteps steps{
      .size = size, .image_channels = image_channels, .net_channels = net_channels};
  const Row* found = nullptr;
  for (const Row& row : kRows) {
    if (row.name == entry.name) found = &row;
  }
  CAROLE_CHECK(found != nullptr, "no steps for the preprocessing {}", entry.name);
  steps.geometry = found->geometry;
  steps.truncates_sides = found->truncates_sides;
  steps.standardizes = !entry.normalization;
  if (steps.standardizes) return steps;
  const auto& subtract = entry.normalization->subtract;
  steps.subtract.assign(subtract.begin(), subtract.begin() + net_channels);
  steps.multiply = entry.normalization->multiply;
  return steps;
}

}  // namespace carole::exporting
