#include "io/events/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace carole::io {
namespace {

// The upper edges of all buckets, ascending.
std::vector<double> MakeEdges() {
  std::vector<double> positive;
  double edge = 1e-12;
  while (edge < 1e20) {
    positive.push_back(edge);
    edge *= 1.1;
  }
  positive.push_back(std::numeric_limits<double>::max());
  std::vector<double> edges;
  for (auto it = positive.rbegin(); it != positive.rend(); ++it) edges.push_back(-*it);
  edges.push_back(0);
  edges.insert(edges.end(), positive.begin(), positive.end());
  return edges;
}

}  // namespace

Histogram MakeHistogram(std::span<const float> values) {
  static const std::vector<double> edges = MakeEdges();
  std::vector<double> counts(edges.size());
  Histogram h{.min = std::numeric_limits<double>::infinity(),
              .max = -std::numeric_limits<double>::infinity()};
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    h.min = std::min(h.min, value);
    h.max = std::max(h.max, value);
    h.count += 1;
    h.sum += value;
    h.sum_squares += value * value;
    counts[static_cast<size_t>(std::ranges::lower_bound(edges, value) - edges.begin())] += 1;
  }
  if (h.count == 0) return {};
  double seen = 0;
  for (size_t i = 0; seen < h.count; ++i) {
    if (seen == 0 && counts[i] == 0) continue;
    // An empty bucket after an empty one only extends it.
    if (counts[i] == 0 && h.counts.back() == 0) {
      h.limits.back() = edges[i];
    } else {
      h.limits.push_back(edges[i]);
      h.counts.push_back(counts[i]);
    }
    seen += counts[i];
  }
  return h;
}

}  // namespace carole::io
