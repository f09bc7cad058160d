#include "src/train/integrity/gradient_digest.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "src/backend/arena_math.h"
#include "src/core/check.h"
#include "src/core/rng.h"

namespace carole::train {
namespace {

template <typename T>
void Sketch(std::span<const T> values, VariableDigest& digest) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    digest.squares += value * value;
    const uint64_t signs = SplitMix64(i);
    for (size_t k = 0; k < digest.sketch.size(); ++k)
      digest.sketch[k] += (signs >> k & 1) != 0 ? value : -value;
  }
}

template <typename T>
void SketchGradients(const VariableStore& store, GradientDigest& digest) {
  for (size_t i = 0; i < digest.size(); ++i) {
    const VariableSlice& p = store.variables()[store.ready_order()[i]];
    Sketch<T>(
        store.gradients<T>().subspan(static_cast<size_t>(p.offset), static_cast<size_t>(p.count)),
        digest[i]);
  }
}

double SumOfSquares(const GradientDigest& digest) {
  double sum = 0;
  for (const VariableDigest& d : digest) sum += d.squares;
  return sum;
}

// Estimates the squared distance of two gradients.
double SquaredDistance(const VariableDigest& a, const VariableDigest& b) {
  double sum = 0;
  for (size_t k = 0; k < a.sketch.size(); ++k) {
    const double difference = a.sketch[k] - b.sketch[k];
    sum += difference * difference;
  }
  return sum / static_cast<double>(a.sketch.size());
}

}  // namespace

GradientDigest DigestGradients(const VariableStore& store, bool with_sketches) {
  const auto floats_in_one = static_cast<int64_t>(SizeOf(store.dtype()) / sizeof(float));
  std::vector<Segment> ranges;  // in floats; the bytes of other types are hashed as floats, too
  for (int v : store.ready_order()) {
    const VariableSlice& p = store.variables()[v];
    ranges.push_back({p.offset * floats_in_one, (p.offset + p.count) * floats_in_one});
  }
  const std::vector<uint64_t> hashes = store.backend().arena_math().Hashes(
      reinterpret_cast<const float*>(store.gradients_base()), ranges);
  GradientDigest digest(hashes.size());
  for (size_t i = 0; i < hashes.size(); ++i) digest[i].hash = hashes[i];
  if (!with_sketches) return digest;
  store.dtype() == DType::kF64 ? SketchGradients<double>(store, digest)
                               : SketchGradients<float>(store, digest);
  return digest;
}

std::optional<size_t> FirstDifference(const GradientDigest& a, const GradientDigest& b,
                                      const Tolerance& tolerance) {
  CAROLE_CHECK_EQ(a.size(), b.size(), "gradients of two ranks");
  const auto [in_a, in_b] =
      std::ranges::mismatch(a, b, {}, &VariableDigest::hash, &VariableDigest::hash);
  if (in_a == a.end()) return std::nullopt;
  if (tolerance.is_exact) return static_cast<size_t>(in_a - a.begin());
  const double squares_a = SumOfSquares(a), squares_b = SumOfSquares(b);
  if (!std::isfinite(squares_a) && !std::isfinite(squares_b)) return std::nullopt;
  const double bound = tolerance.bound * tolerance.bound * std::min(squares_a, squares_b);
  double distance = 0;
  for (size_t i = 0; i < a.size(); ++i) distance += SquaredDistance(a[i], b[i]);
  if (distance <= bound) return std::nullopt;
  // At least one variable has an average share of the distance, or more.
  for (size_t i = 0; i < a.size(); ++i) {
    const double part = SquaredDistance(a[i], b[i]);
    if (!(part <= bound / static_cast<double>(a.size()))) return i;
  }
  return static_cast<size_t>(in_a - a.begin());
}

}  // namespace carole::train
