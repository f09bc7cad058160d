// The preprocessing of VGG and ResNet: resizes the image with its aspect ratio kept, then takes a
// crop. Only the crop is computed, from the pixels that it needs.
#include "io/image/resize.h"
#include "io/preprocessing/distortion.h"
#include "io/preprocessing/preprocessing.h"

namespace carole::io {
namespace {

constexpr auto& kMeans = kImagenetMeans;

constexpr PixelMap kVggMap{.subtract = kMeans};
constexpr PixelMap kImagenetResnetMap{
    .unit = 1.0f / 255.0f,
    .subtract = {kMeans[0] / 255.0f, kMeans[1] / 255.0f, kMeans[2] / 255.0f}};

void ResizeAndCrop(const PreprocessingTask& task, const ScaledCrop& crop, const PixelMap& map) {
  const int height = task.image.height();
  const int width = task.image.width();
  ResizeBilinear(
      {.source = {.height = height, .width = width},
       .rows = {.in = height, .out = crop.height, .first = crop.top, .count = task.height},
       .columns = {.in = width,
                   .out = crop.width,
                   .first = crop.left,
                   .count = task.width,
                   .mirrored = crop.mirrored},
       .map = map},
      task.image, task.out);
}

void Train(const PreprocessingTask& task, SideRounding rounding, const PixelMap& map) {
  ResizeAndCrop(task,
                DrawScaledCrop(task.image.height(), task.image.width(), task.height, task.width,
                               rounding, *task.rng, task.min_crop_area),
                map);
}

void Eval(const PreprocessingTask& task, SideRounding rounding, const PixelMap& map) {
  ResizeAndCrop(
      task,
      CentralScaledCrop(task.image.height(), task.image.width(), task.height, task.width, rounding),
      map);
}

}  // namespace

void PreprocessVggTrain(const PreprocessingTask& task) {
  Train(task, SideRounding::kHalfEven, kVggMap);
}
void PreprocessVggEval(const PreprocessingTask& task) {
  Eval(task, SideRounding::kHalfEven, kVggMap);
}
void PreprocessImagenetResnetTrain(const PreprocessingTask& task) {
  Train(task, SideRounding::kTruncate, kImagenetResnetMap);
}
void PreprocessImagenetResnetEval(const PreprocessingTask& task) {
  Eval(task, SideRounding::kTruncate, kImagenetResnetMap);
}

}  // namespace carole::io
