// Inception's preprocessing: a crop of the image, resized without keeping its aspect ratio, in
// [-1, 1].
#include <algorithm>

#include "io/image/color.h"
#include "io/image/resize.h"
#include "io/preprocessing/distortion.h"
#include "io/preprocessing/preprocessing.h"

namespace carole::io {
namespace {

constexpr PixelMap kMap{.unit = 1.0f / 255.0f, .subtract = {0.5f, 0.5f, 0.5f}, .multiply = 2.0f};

ResizeTask ResizeOf(const Region& crop, const PreprocessingTask& task, const PixelMap& map) {
  return {.source = crop,
          .rows = {.in = crop.height, .out = task.height, .count = task.height},
          .columns = {.in = crop.width, .out = task.width, .count = task.width},
          .map = map};
}

// The first row or column of evaluation's central crop, which leaves out 6.25 % on each side.
int CentralCropStart(int size) {
  return static_cast<int>((static_cast<double>(size) - size * 0.875) / 2.0);
}

void Mirror(FloatImage& image) {
  const auto pixel = [&](int y, int x) {
    return image.values.begin() + (int64_t{y} * image.width + x) * image.channels;
  };
  for (int y = 0; y < image.height; ++y) {
    for (int a = 0, b = image.width - 1; a < b; ++a, --b)
      std::swap_ranges(pixel(y, a), pixel(y, a) + image.channels, pixel(y, b));
  }
}

void Distort(FloatImage& image, const ColorDistortion& color) {
  for (ColorStep step : kColorOrders[color.order]) {
    const bool has_color = image.channels == 3;  // saturation and hue exist for colors only
    switch (step) {
      case ColorStep::kBrightness:
        AdjustBrightness(image, color.brightness);
        break;
      case ColorStep::kSaturation:
        if (has_color) AdjustSaturation(image, color.saturation);
        break;
      case ColorStep::kHue:
        if (has_color) AdjustHue(image, color.hue);
        break;
      case ColorStep::kContrast:
        AdjustContrast(image, color.contrast);
        break;
    }
  }
  ClipToUnit(image);
}

// Runs one operation after the other on the whole image. Slow mode needs this, because contrast
// uses the mean of the whole image. Gray images use it too; they are rare.
void DistortStepByStep(const PreprocessingTask& task, const InceptionDistortion& d) {
  const FloatImage crop = ToFloats(task.image.Decode(d.crop), kMap.unit);
  FloatImage image =
      Resize(crop, task.height, task.width, static_cast<ResizeMethod>(d.resize_method));
  if (d.mirrored) Mirror(image);
  Distort(image, d.color);
  for (size_t i = 0; i < task.out.size(); ++i)
    task.out[i] = (image.values[i] - kMap.subtract[0]) * kMap.multiply;
}

}  // namespace

void PreprocessInceptionEval(const PreprocessingTask& task) {
  Region crop{.top = CentralCropStart(task.image.height()),
              .left = CentralCropStart(task.image.width())};
  crop.height = task.image.height() - 2 * crop.top;
  crop.width = task.image.width() - 2 * crop.left;
  ResizeBilinear(ResizeOf(crop, task, kMap), task.image, task.out);
}

void PreprocessInceptionTrain(const PreprocessingTask& task) {
  const InceptionDistortion d =
      DrawInceptionDistortion(task.image.height(), task.image.width(), task.boxes, task.fast_mode,
                              *task.rng, task.min_crop_area);
  if (!task.fast_mode || task.image.channels() != 3) return DistortStepByStep(task, d);
  PixelMap map = kMap;
  map.distort = true;
  map.brightness = d.color.brightness;
  map.saturation = d.color.saturation;
  ResizeTask resize = ResizeOf(d.crop, task, map);
  resize.columns.mirrored = d.mirrored;
  ResizeBilinear(resize, task.image, task.out);
}

}  // namespace carole::io
