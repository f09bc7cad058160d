// Turns decoded images into the numbers that a net is fed, one way for training and one for
// evaluation. Add a declaration and a row.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "io/image.h"
#include "src/core/rng.h"

namespace carole::io {

struct PreprocessingTask {
  ImageView image;  // any size; its channels are those of the output
  int height = 0;   // of the output
  int width = 0;
  std::span<float> out;  // (height, width, channels), overwritten
  Rng* rng =
      nullptr;  // training only; keyed by (epoch, record), so that threads and ranks change nothing
};

// Functions are pure and may run on any thread. They throw DataError when an image cannot be made
// to fit.
using PreprocessingFunction = void (*)(const PreprocessingTask& task);

// Values 0..255, cut or zero-padded to size about the centre, then (x - 128) / 128.
void PreprocessLenet(const PreprocessingTask& task);

// Evaluation: cut or zero-padded to size, then (x - mean) / max(deviation, 1 / sqrt(values)) over
// the whole image.
void PreprocessCifarnetEval(const PreprocessingTask& task);
// Training: four zeros on each side, random crop, mirrored with probability 1/2, brightness +
// U[-63, 63), contrast U[0.2, 1.8) about each channel's mean, then standardised as in evaluation.
void PreprocessCifarnetTrain(const PreprocessingTask& task);

struct PreprocessingEntry {
  std::string_view name;
  PreprocessingFunction train = nullptr;
  PreprocessingFunction eval = nullptr;
};

// Named, as in TF-Slim, after the nets that need them.
inline constexpr PreprocessingEntry kPreprocessings[] = {
    {.name = "lenet", .train = PreprocessLenet, .eval = PreprocessLenet},
    {.name = "cifarnet", .train = PreprocessCifarnetTrain, .eval = PreprocessCifarnetEval},
};

// The row of a name. Throws UsageError that lists the names.
const PreprocessingEntry& FindPreprocessing(std::string_view name);

}  // namespace carole::io
