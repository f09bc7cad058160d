// Histograms for TensorBoard.
#pragma once

#include <span>
#include <vector>

namespace carole::io {

// Bucket i holds the finite values in (limits[i-1], limits[i]]; the first begins at min. NaN and
// infinity are left out of everything.
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> limits;
  std::vector<double> counts;
};

// With TensorFlow's edges: 0 and ±1e-12 * 1.1^k up to 1e20. Runs of empty buckets are joined into
// one; there are none in front or at the end.
Histogram MakeHistogram(std::span<const float> values);

}  // namespace carole::io
