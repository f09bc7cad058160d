// Inception's preprocessing: part of the image, resized whatever its shape, in [-1, 1].
#include <algorithm>

#include "io/image/color.h"
#include "io/image/resize.h"
#include "io/preprocessing/distortion.h"
#include "io/preprocessing/preprocessing.h"

namespace carole::io {
namespace {

constexpr PixelMap kMap{.unit = 1.0f / 255.0f, .subtract = {0.5f, 0.5f, 0.5f}, .multiply = 2.0f};

ResizeTask ResizeOf(const Region& window, const PreprocessingTask& task, const PixelMap& map) {
  return {.source = window,
          .rows = {.in = window.height, .out = task.height, .count = task.height},
          .columns = {.in = window.width, .out = task.width, .count = task.width},
          .map = map};
}

// Where the part of the image that evaluation looks at begins: 6.25 % from each side.
int CentralStart(int size) {
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
    const bool has_color = image.channels == 3;  // gray has neither saturation nor hue
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

// One operation after the other: contrast needs the mean of the whole image, and gray is rare.
void DistortStepByStep(const PreprocessingTask& task, const InceptionDistortion& d) {
  const FloatImage crop = ToFloats(task.picture.Decode(d.window), kMap.unit);
  FloatImage image =
      Resize(crop, task.height, task.width, static_cast<ResizeMethod>(d.resize_method));
  if (d.mirrored) Mirror(image);
  Distort(image, d.color);
  for (size_t i = 0; i < task.out.size(); ++i)
    task.out[i] = (image.values[i] - kMap.subtract[0]) * kMap.multiply;
}

}  // namespace

void PreprocessInceptionEval(const PreprocessingTask& task) {
  Region window{.top = CentralStart(task.picture.height()),
                .left = CentralStart(task.picture.width())};
  window.height = task.picture.height() - 2 * window.top;
  window.width = task.picture.width() - 2 * window.left;
  ResizeBilinear(ResizeOf(window, task, kMap), task.picture, task.out);
}

void PreprocessInceptionTrain(const PreprocessingTask& task) {
  const InceptionDistortion d = DrawInceptionDistortion(task.picture.height(), task.picture.width(),
                                                        task.boxes, task.fast_mode, *task.rng);
  if (!task.fast_mode || task.picture.channels() != 3) return DistortStepByStep(task, d);
  PixelMap map = kMap;
  map.distort = true;
  map.brightness = d.color.brightness;
  map.saturation = d.color.saturation;
  ResizeTask resize = ResizeOf(d.window, task, map);
  resize.columns.mirrored = d.mirrored;
  ResizeBilinear(resize, task.picture, task.out);
}

}  // namespace carole::io
