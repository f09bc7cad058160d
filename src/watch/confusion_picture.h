// The confusion matrix as pixels, and what its rows are called.
#pragma once

#include <string>
#include <vector>

#include "io/image.h"
#include "src/train/metrics.h"

namespace carole::watch {

// A square for each cell, the darker the larger its share of the label's samples.
io::Image ConfusionPicture(const train::Metrics& metrics);

// The label's name, or its number where it has none.
std::string LabelName(const std::vector<std::string>& names, int64_t label);

}  // namespace carole::watch
