// The confusion matrix as pixels.
#pragma once

#include "io/image.h"
#include "src/train/metrics.h"

namespace carole::watch {

// A square for each cell, the darker the larger its share of the label's samples.
io::Image ConfusionPicture(const train::Metrics& metrics);

}  // namespace carole::watch
