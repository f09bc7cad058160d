#include "src/train/state/moving_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/core/error.h"

namespace carole::train {
namespace {

constexpr double kLargestShare = 0.05;  // of the start, which does not matter yet

}  // namespace

double StatisticsDecay(const Graph& graph) {
  double largest = 0;
  for (const Node& node : graph.nodes()) {
    if (node.dead) continue;
    if (const auto* norm = node.attributes.get_if<BatchNormAttributes>())
      largest = std::max(largest, norm->decay);
    if (const auto* folded = node.attributes.get_if<FoldedBatchNormAttributes>())
      largest = std::max(largest, folded->decay);
  }
  return largest;
}

double FitStatisticsDecay(int64_t steps) {
  constexpr double kShortest = 0.8, kLongest = 0.997, kEndless = 0.99;
  if (steps <= 0) return kEndless;
  return std::clamp(1 - 20 / static_cast<double>(steps), kShortest, kLongest);
}

std::string DescribeYoungStatistics(double decay, int64_t steps) {
  if (decay <= 0 || steps < 0) return "";
  const double share = std::pow(decay, static_cast<double>(steps));
  if (share <= kLargestShare) return "";
  const double fitting = std::pow(FitStatisticsDecay(steps), static_cast<double>(steps));
  return fmt::format(
      "batch norm: {:.0f} % of the start of its moving statistics is left after {} steps (decay "
      "{:g}), so evaluation and prediction do not work as training did; train longer{}",
      share * 100, steps, decay,
      fitting <= kLargestShare ? ", or anew with " + Option("batch_norm_decay", "auto") : "");
}

}  // namespace carole::train
