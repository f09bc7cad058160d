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
constexpr double kFew = 4;  // times what TensorFlow's own fp32 kernels stray
// In bf16 and fp16, measured on oneDNN and the reference backend over all nets of
// tests/data/goldens. At least so many roundings, relative to the quantity's scale: logits, end
// points, loss, gradients, statistics.
constexpr double kRoundings[] = {2, 3, 2, 4, 0.1};
// Beyond that, rounding grows in a net as it does in fp32, whose recorded values show it: so large
// a share of it, as sums stay fp32. Gradients differ by the ReLUs that flip: their number grows
// with the rounding, and what they take along with its root.
constexpr double kShareOfGrowth = 0.35;
constexpr double kRoundoffOfFp32 = 0x1p-24;
// Nets that narrow types disturb more than what is recorded shows, by luck or as they normalize a
// few values: on the reference backend by up to half as much as this; inception_v3 in TF32 on an
// H200 by two thirds.
constexpr std::pair<std::string_view, double> kSensitive[] = {
    {"inception_resnet_v2", 8}, {"inception_v3", 2}, {"nasnet_cifar", 16}, {"nasnet_mobile", 4}};
constexpr int kMaxFailuresShown = 10;  // of one net: one wrong layer makes all behind it wrong

}  // namespace

double Report::Narrow(Kind kind, const Bound& bound) const {
  const double ratio = roundoff_ / kRoundoffOfFp32;
  const double grown = kind == Kind::kGradients
                           ? bound.strays * std::sqrt(ratio)
                           : std::min(kShareOfGrowth * bound.strays * ratio, bound.scale / 2);
  const double narrow =
      std::max(grown, kRoundings[static_cast<size_t>(kind)] * roundoff_ * bound.scale);
  for (const auto& [net, times] : kSensitive)
    if (net == net_) return times * narrow;
  return narrow;
}

void Report::Check(Kind kind, const std::string& name, double got, const Recorded& want,
                   const Bound& bound) {
  const double error = std::abs(got - want.f64);
  const double unit =
      single_ ? bound.scale : std::max(std::abs(want.f64), kDoubleTolerance * bound.scale);
  const double allowed =
      single_
          ? kFew * std::max({std::abs(want.f32 - want.f64), bound.absolute, Narrow(kind, bound)})
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
