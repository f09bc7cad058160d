#include "collectives/reducer/adasum.h"

#include <algorithm>

namespace carole::collectives {
namespace {

// Sums in a fixed number of lanes, so that the compiler can use vector instructions.
template <typename T>
double Dot(std::span<const T> a, std::span<const T> b) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lanes[l] += double{a[i + l]} * double{b[i + l]};
  }
  for (; i < a.size(); ++i) lanes[0] += double{a[i]} * double{b[i]};
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

template <typename T>
void AdasumPair(std::span<T> a, std::span<const T> b) {
  const double dot = Dot<T>(a, b), aa = Dot<T>(a, a), bb = Dot<T>(b, b);
  const double scale_a = aa > 0 ? 1 - dot / (2 * aa) : 1, scale_b = bb > 0 ? 1 - dot / (2 * bb) : 1;
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(scale_a * a[i] + scale_b * b[i]);
}

template <typename T>
void AdasumOverRanks(Communicator& communicator, std::span<T> data, std::span<const Range> layers,
                     std::vector<T>& gathered, const Tag& tag) {
  const auto size = static_cast<size_t>(communicator.size());
  if (size == 1) return;
  gathered.resize(size * data.size());
  communicator.AllGather(std::as_bytes(data), std::as_writable_bytes(std::span(gathered)), tag);
  const auto piece = [&](size_t rank, const Range& layer) {
    return std::span(gathered).subspan(rank * data.size() + layer.offset, layer.count);
  };
  for (const Range& layer : layers) {
    for (size_t stride = 1; stride < size; stride *= 2) {
      for (size_t rank = 0; rank + stride < size; rank += 2 * stride)
        AdasumPair<T>(piece(rank, layer), piece(rank + stride, layer));
    }
    const auto result = piece(0, layer);
    std::copy(result.begin(), result.end(),
              data.begin() + static_cast<std::ptrdiff_t>(layer.offset));
  }
}

template void AdasumPair(std::span<float>, std::span<const float>);
template void AdasumPair(std::span<double>, std::span<const double>);
template void AdasumOverRanks(Communicator&, std::span<float>, std::span<const Range>,
                              std::vector<float>&, const Tag&);
template void AdasumOverRanks(Communicator&, std::span<double>, std::span<const Range>,
                              std::vector<double>&, const Tag&);

}  // namespace carole::collectives
