// The preprocessing of evaluation as steps that other programs have operations for.
#pragma once

#include <cstdint>
#include <vector>

#include "io/preprocessing/preprocessing.h"

namespace carole::exporting {

// How an image gets the size of the net's input.
enum class Geometry : uint8_t {
  kCentralPart,  // cuts 1/16 off each side, then resizes without keeping the aspect ratio
  kShorterSide,  // resizes so that the shorter side has kEvaluationShorterSide, then crops
  kCropOrPad,    // crops, or pads with zeros, around the center
  kAsItIs        // the image must have the size already
};

struct PreprocessingSteps {
  Geometry geometry = Geometry::kAsItIs;
  bool truncates_sides = false;  // kShorterSide: sides are truncated; if not, rounded half to even
  int64_t size = 0;              // height and width of the result
  int64_t image_channels = 3;    // of the image
  int64_t net_channels = 3;      // of the result; 1 of 3: colors become gray after resizing
  bool standardizes = false;     // (x - mean) / max(deviation, 1 / sqrt(number of values))
  // If it does not standardize: (x - subtract) * multiply, one number to subtract per channel.
  std::vector<float> subtract;
  float multiply = 1;
};

// Returns the steps of `entry` for images of bytes. `size`: of the net's images.
PreprocessingSteps StepsOf(const io::PreprocessingEntry& entry, int64_t size,
                           int64_t image_channels, int64_t net_channels);

}  // namespace carole::exporting
