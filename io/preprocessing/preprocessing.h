// Turns images into the input values of a net. This is the first header of the room
// io/preprocessing.
//
// Each preprocessing has one function for training and one for evaluation. They reproduce those of
// TF-Slim, of the official ImageNet ResNet and of the Keras MNIST example. A training function
// first draws all random decisions (distortion.h), then applies them. Only the pixels that the
// result needs are decoded.
//
// To add a preprocessing: declare its two functions below, add a row to kPreprocessings, and
// implement them in a preprocessing_*.cpp. The room may include io/image and core.
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

// The arguments of a preprocessing function.
struct PreprocessingTask {
  // The input: any size, not yet decoded. It has as many channels as the output, except as said at
  // Preprocess().
  LazyImage& image;
  int height = 0;  // of the output
  int width = 0;
  std::span<float> out;  // (height, width, channels), overwritten
  // Training only. Keyed by (epoch, record), so that the number of threads or ranks changes
  // nothing.
  Rng* rng = nullptr;
  // A crop must show a part of one of these boxes. Empty: the whole image counts as one box.
  std::span<const Box> boxes = {};
  // Inception's training only: resizes bilinearly and changes only brightness and saturation.
  bool fast_mode = true;
  // Training of Inception, VGG and ResNet only: the smallest share of a square image that a crop
  // takes; 0: TF-Slim's crops.
  double min_crop_area = 0;
};

// These functions have no state and may run on any thread. They throw DataError if an image cannot
// be brought to the output's size.
using PreprocessingFunction = void (*)(const PreprocessingTask& task);

// Values 0..255, cropped or zero-padded around the center, then (x - 128) / 128.
void PreprocessLenet(const PreprocessingTask& task);

// Values 0..255; an image of another size is resized (prediction only). Then x / 255.
void PreprocessMnistKeras(const PreprocessingTask& task);

// Evaluation: cropped or zero-padded around the center, then standardized over the whole image:
// (x - mean) / max(deviation, 1 / sqrt(number of values)).
void PreprocessCifarnetEval(const PreprocessingTask& task);
// Training: pads four zeros on each side, takes a random crop, mirrors it with probability 1/2.
// Then adds a brightness of U[-63, 63), scales the contrast around each channel's mean by
// U[0.2, 1.8), and standardizes as in evaluation.
void PreprocessCifarnetTrain(const PreprocessingTask& task);

// Values 0..255, resized with the aspect ratio kept, cropped; then the ImageNet means are
// subtracted. Evaluation: the shorter side is 256, and the crop is in the center. Training: the
// shorter side is uniform in 256..512; the crop is anywhere and mirrored with probability 1/2.
void PreprocessVggEval(const PreprocessingTask& task);
void PreprocessVggTrain(const PreprocessingTask& task);

// The preprocessing of the official ImageNet ResNet of 2017. Like VGG's, with two differences:
// values are in [0, 1], and scaled sides are truncated, so the shorter side may be one pixel less.
void PreprocessImagenetResnetEval(const PreprocessingTask& task);
void PreprocessImagenetResnetTrain(const PreprocessingTask& task);

// Evaluation: the central 87.5 % of each side, resized, in [-1, 1].
void PreprocessInceptionEval(const PreprocessingTask& task);
// Training: a random crop (DrawCropRegion()), resized without keeping its aspect ratio, mirrored
// with probability 1/2, with distorted colors, in [-1, 1].
void PreprocessInceptionTrain(const PreprocessingTask& task);

// The last step of a preprocessing: (pixel - subtract[channel]) * multiply. The pixels are in
// 0..255, but are not integers if they were resized.
struct Normalization {
  std::array<float, 3> subtract{};
  float multiply = 1;
};

inline constexpr std::array<float, 3> kImagenetMeans = {123.68f, 116.78f, 103.94f};  // R, G, B
// The shares of red, green and blue in a gray pixel, as TF-Slim's use_grayscale has them.
inline constexpr std::array<float, 3> kGrayWeights = {0.2989f, 0.587f, 0.114f};
// The shorter side of an image, in pixels, from which VGG's and ResNet's evaluation take the crop.
inline constexpr int kEvaluationShorterSide = 256;

// A preprocessing, which users select by its name.
struct PreprocessingEntry {
  std::string_view name;
  PreprocessingFunction train = nullptr;
  PreprocessingFunction eval = nullptr;
  int max_size = 1 << 14;                      // of a side of the output
  std::optional<Normalization> normalization;  // none: each image is standardized
  bool has_integer_pixels = false;  // pixels before normalization are integers for every image
  bool uses_boxes = false;          // training looks at PreprocessingTask::boxes
};

// Every preprocessing. As in TF-Slim, the names are those of the nets that need them. max_size of
// imagenet_resnet is 255, because its shorter side may be 255 after truncation.
inline constexpr PreprocessingEntry kPreprocessings[] = {
    {.name = "lenet",
     .train = PreprocessLenet,
     .eval = PreprocessLenet,
     .normalization = Normalization{.subtract = {128, 128, 128}, .multiply = 1.0f / 128},
     .has_integer_pixels = true},
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
     .has_integer_pixels = true},
};

// Finds a row of kPreprocessings. Throws UsageError, which lists the names, if there is none.
const PreprocessingEntry& FindPreprocessing(std::string_view name);

// The normalization for a net that gets pixels as bytes and normalizes them itself. Throws
// UsageError if this preprocessing standardizes each image instead.
const Normalization& NormalizationOf(const PreprocessingEntry& entry);

// Returns the standard deviation that the values of photos have after this preprocessing.
float DeviationOf(const PreprocessingEntry& entry);

// Converts preprocessed values back to pixels, rounded and clipped to 0..255. Both spans have shape
// (height, width, channels). If the image was standardized, its smallest value becomes 0 and its
// largest 255.
void ToPixels(const PreprocessingEntry& entry, std::span<const float> values, int channels,
              std::span<uint8_t> pixels);

// Throws UsageError if the preprocessing cannot produce images of this size.
void CheckPreprocessingSize(const PreprocessingEntry& entry, int height, int width);

// Calls `function`, which is the train or eval function of `entry`. If the image has three channels
// and out has room for one value per pixel, out becomes gray, as with TF-Slim's use_grayscale.
// TensorFlow applies its weights 0.2989, 0.587 and 0.114 before normalization. Normalization is
// linear, so this function weighs the normalized values instead.
void Preprocess(const PreprocessingEntry& entry, PreprocessingFunction function,
                const PreprocessingTask& task);

}  // namespace carole::io
