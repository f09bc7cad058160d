// Draws the confusion matrix: as an image for TensorBoard, and as HTML for the report.
#pragma once

#include <string>
#include <vector>

#include "io/image/image.h"
#include "src/monitoring/report/history.h"
#include "src/train/evaluation/metrics.h"

namespace carole::monitoring {

// Draws a square for each cell. It is the darker the larger the cell's share of the label's
// samples.
io::Image ConfusionImage(const train::Metrics& metrics);
// At this number of classes a cell is one pixel. Larger images would be of no use.
inline constexpr int64_t kMaxConfusionImageClasses = 4000;

// Returns HTML: a drawing for up to kMaxDrawnClasses classes, otherwise a table of the pairs that
// are confused most often.
inline constexpr int64_t kMaxDrawnClasses = 40;
std::string DrawConfusion(const Confusion& confusion, const std::vector<std::string>& names);

// Returns the name of a class, or its number if it has no name. Bytes that are not UTF-8 become
// U+FFFD.
std::string LabelName(const std::vector<std::string>& names, int64_t label);

}  // namespace carole::monitoring
