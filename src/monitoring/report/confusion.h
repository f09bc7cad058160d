// The confusion matrix as pixels and as a part of the report, and what its rows are called.
#pragma once

#include <string>
#include <vector>

#include "io/image/image.h"
#include "src/monitoring/report/history.h"
#include "src/train/evaluation/metrics.h"

namespace carole::monitoring {

// A square for each cell, the darker the larger its share of the label's samples.
io::Image ConfusionPicture(const train::Metrics& metrics);
inline constexpr int64_t kMaxPicturedClasses = 4000;  // a pixel each: more is no picture for eyes

// HTML: a picture of up to kMaxDrawnClasses, else a table of the pairs that are confused most
// often.
inline constexpr int64_t kMaxDrawnClasses = 40;
std::string DrawConfusion(const Confusion& confusion, const std::vector<std::string>& names);

// The label's name, or its number where it has none. What is no UTF-8 becomes U+FFFD.
std::string LabelName(const std::vector<std::string>& names, int64_t label);

}  // namespace carole::monitoring
