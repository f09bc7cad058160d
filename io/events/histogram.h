// Histograms as TensorBoard shows them.
#pragma once

#include <span>
#include <vector>

namespace carole::io {

// Statistics of the finite values of a tensor. NaN and infinity are ignored everywhere.
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_squares = 0;
  // Bucket i counts the values in (limits[i-1], limits[i]]; the first bucket begins at min.
  std::vector<double> limits;
  std::vector<double> counts;
};

// Counts values into TensorFlow's buckets, whose edges are 0 and ±1e-12 * 1.1^k up to 1e20.
// Consecutive empty buckets are merged into one. There are no empty buckets at the two ends.
Histogram MakeHistogram(std::span<const float> values);

}  // namespace carole::io
