// Turns images into the numbers that a net is fed, one way for training and one for evaluation. Add
// a declaration and a row.
//
// Each training function draws what is random first (see distortion.h), then does it; only the
// pixels that the result needs are decoded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "io/image/box.h"
#include "io/image/lazy_image.h"
#include "src/core/rng.h"

namespace carole::io {

struct PreprocessingTask {
  LazyImage& picture;  // any size, not yet decoded; its channels are those of the output (but see
                       // Preprocess())
  int height = 0;      // of the output
  int width = 0;
  std::span<float> out;  // (height, width, channels), overwritten
  // Training only; keyed by (epoch, record), so that threads and ranks change nothing.
  Rng* rng = nullptr;
  std::span<const Box> boxes = {};  // that a crop should show something of; none: the whole image
  bool fast_mode = true;            // Inception's: bilinear only, brightness and saturation only
};

// Functions are pure and may run on any thread. They throw DataError when an image cannot be made
// to fit.
using PreprocessingFunction = void (*)(const PreprocessingTask& task);

// Values 0..255, cut or zero-padded to size about the center, then (x - 128) / 128.
void PreprocessLenet(const PreprocessingTask& task);

// Values 0..255, cut or zero-padded to size about the center, then x / 255.
void PreprocessMnistKeras(const PreprocessingTask& task);

// Evaluation: cut or zero-padded to size, then (x - mean) / max(deviation, 1 / sqrt(values)) over
// the whole image.
void PreprocessCifarnetEval(const PreprocessingTask& task);
// Training: four zeros on each side, random crop, mirrored with probability 1/2, brightness +
// U[-63, 63), contrast U[0.2, 1.8) about each channel's mean, then standardized as in evaluation.
void PreprocessCifarnetTrain(const PreprocessingTask& task);

// Values 0..255, resized so that the shorter side is 256 (evaluation; crop from the center) or
// uniform in 256..512 (training; crop anywhere, mirrored with probability 1/2); means subtracted.
void PreprocessVggEval(const PreprocessingTask& task);
void PreprocessVggTrain(const PreprocessingTask& task);

// The official ImageNet ResNet's of 2017: as vgg's, but values in [0, 1], and sides are truncated,
// so that the shorter one may be a pixel less.
void PreprocessImagenetResnetEval(const PreprocessingTask& task);
void PreprocessImagenetResnetTrain(const PreprocessingTask& task);

// Evaluation: the central 87.5 % of each side, resized, in [-1, 1].
void PreprocessInceptionEval(const PreprocessingTask& task);
// Training: a random box (distortion.h), resized whatever its shape, mirrored with probability 1/2,
// colors distorted, in [-1, 1].
void PreprocessInceptionTrain(const PreprocessingTask& task);

// What is done at last to pixels, which are in 0..255 but not whole where they were resized:
// (pixel - subtract[channel]) * multiply.
struct Normalization {
  std::array<float, 3> subtract{};
  float multiply = 1;
};

inline constexpr std::array<float, 3> kImagenetMeans = {123.68f, 116.78f, 103.94f};  // R, G, B

struct PreprocessingEntry {
  std::string_view name;
  PreprocessingFunction train = nullptr;
  PreprocessingFunction eval = nullptr;
  int max_size = 1 << 14;                      // of the output
  std::optional<Normalization> normalization;  // none: each image is standardized
  bool has_whole_pixels = false;               // before that, whatever the image
  bool uses_boxes = false;
};

// Named, as in TF-Slim, after the nets that need them. 255: the shorter side may be 255 after all.
inline constexpr PreprocessingEntry kPreprocessings[] = {
    {.name = "lenet",
     .train = PreprocessLenet,
     .eval = PreprocessLenet,
     .normalization = Normalization{.subtract = {128, 128, 128}, .multiply = 1.0f / 128},
     .has_whole_pixels = true},
    {.name = "cifarnet", .train = PreprocessCifarnetTrain, .eval = PreprocessCifarnetEval},
    {.name = "vgg",
     .train = PreprocessVggTrain,
     .eval = PreprocessVggEval,
     .max_size = 256,
     .normalization = Normalization{.subtract = kImagenetMeans}},
    {.name = "inception",
     .train = PreprocessInceptionTrain,
     .eval = PreprocessInceptionEval,
     .normalization = Normalization{.subtract = {127.5f, 127.5f, 127.5f}, .multiply = 1 / 127.5f},
     .uses_boxes = true},
    {.name = "imagenet_resnet",
     .train = PreprocessImagenetResnetTrain,
     .eval = PreprocessImagenetResnetEval,
     .max_size = 255,
     .normalization = Normalization{.subtract = kImagenetMeans, .multiply = 1.0f / 255}},
    {.name = "mnist_keras",
     .train = PreprocessMnistKeras,
     .eval = PreprocessMnistKeras,
     .normalization = Normalization{.multiply = 1.0f / 255},
     .has_whole_pixels = true},
};

// The row of a name. Throws UsageError that lists the names.
const PreprocessingEntry& FindPreprocessing(std::string_view name);

// How a net normalizes bytes itself. Throws UsageError where each image is standardized.
const Normalization& NormalizationOf(const PreprocessingEntry& entry);

// Values as a preprocessing made them, back to pixels: (height, width, channels), as many as there
// are pixels. They are rounded, and what lies outside 0..255 is cut. Where an image was
// standardized, its values are spread from its least to its largest.
void ToPixels(const PreprocessingEntry& entry, std::span<const float> values, int channels,
              std::span<uint8_t> pixels);

// Throws UsageError when the preprocessing cannot make images of this size.
void CheckPreprocessingSize(const PreprocessingEntry& entry, int height, int width);

// Calls `function`, one of the entry's. Where the picture has three channels and out only one value
// for a pixel, out gets gray, as TF-Slim's --use_grayscale makes it: TensorFlow's weights, 0.2989,
// 0.587 and 0.114, are meant for pixels before they are normalized; as all that follows is linear,
// normalized values can be weighed as well.
void Preprocess(const PreprocessingEntry& entry, PreprocessingFunction function,
                const PreprocessingTask& task);

}  // namespace carole::io
