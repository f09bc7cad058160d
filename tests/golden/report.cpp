#include "tests/golden/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace carole::golden {
namespace {

constexpr double kDoubleTolerance = 1e-6;
constexpr double kFp32Factor = 4;  // times the deviation of TensorFlow's own fp32 kernels

// The following bounds for bf16 and fp16 were measured with oneDNN and the reference backend over
// all nets of tests/data/goldens.
//
// Allowed in any case: this many rounding errors, relative to the scale of the quantity. The kinds
// are logits, end points, loss, gradients, statistics.
constexpr double kMinRoundings[] = {2, 3, 2, 4, 0.1};
// Rounding errors grow through a net as they do in fp32, which the recorded values show. Only this
// share of the growth is allowed, because sums stay in fp32. Gradients differ by the ReLUs that
// flip: the number of flips grows with the rounding error, and their effect with its square root.
constexpr double kGrowthFactor = 0.35;
constexpr double kRoundoffOfFp32 = 0x1p-24;
// Nets that narrow types disturb more than the recorded values show, by chance or because they
// normalize few values, and the factor that they get. On the reference backend they need at most
// half of it; inception_v3 in TF32 on an H200 needs two thirds.
constexpr std::pair<std::string_view, double> kSensitiveNets[] = {
    {"inception_resnet_v2", 8}, {"inception_v3", 2}, {"nasnet_cifar", 16}, {"nasnet_mobile", 4}};
constexpr int kMaxFailuresShown = 10;  // per net; one wrong layer makes all later values wrong

}  // namespace

double Report::NarrowTypeSlack(Kind kind, const Bound& bound) const {
  const double ratio = roundoff_ / kRoundoffOfFp32;
  const double grown =
      kind == Kind::kGradients
          ? bound.fp32_deviation * std::sqrt(ratio)
          : std::min(kGrowthFactor * bound.fp32_deviation * ratio, bound.scale / 2);
  const double narrow =
      std::max(grown, kMinRoundings[static_cast<size_t>(kind)] * roundoff_ * bound.scale);
  for (const auto& [net, factor] : kSensitiveNets)
    if (net == net_) return factor * narrow;
  return narrow;
}

void Report::Check(Kind kind, const std::string& name, double got, const Recorded& want,
                   const Bound& bound) {
  const double error = std::abs(got - want.f64);
  const double unit =
      is_fp32_ ? bound.scale : std::max(std::abs(want.f64), kDoubleTolerance * bound.scale);
  const double allowed =
      is_fp32_ ? kFp32Factor * std::max({std::abs(want.f32 - want.f64), bound.absolute,
                                         NarrowTypeSlack(kind, bound)})
               : kDoubleTolerance * unit;
  double& worst = worst_[static_cast<size_t>(kind)];
  worst = std::isnan(error) ? error : std::max(worst, unit > 0 ? error / unit : error);
  if (error <= allowed) return;  // false for NaN
  if (++failures_ <= kMaxFailuresShown) {
    ADD_FAILURE() << fmt::format("{} on {}: {}: got {:.13g}, want {:.13g} within {:.3g}", net_,
                                 backend_, name, got, want.f64, allowed);
  }
}

std::string Report::Header() {
  return fmt::format("{:<32} {:<14} {:>12}  {:>10} {:>10} {:>10} {:>10} {:>10}", "net", "backend",
                     "parameters", "logits", "end points", "loss", "gradients", "statistics");
}

std::string Report::Row() const {
  std::string row = fmt::format("{:<32} {:<14} {:>12} ", net_, backend_, parameters_);
  for (double worst : worst_) row += fmt::format(" {:>10.1e}", worst);
  return failures_ == 0 ? row : row + fmt::format("  {} values out of bounds", failures_);
}

}  // namespace carole::golden
