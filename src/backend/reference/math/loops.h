// Parallel loops of the reference backend. They give each index to one thread, and the ranges do
// not depend on the number of threads.
#pragma once

#include <cstdint>

#include "src/core/divide_up.h"

namespace carole::reference {

// Runs f(i) for i in [0, count) on up to `threads` threads. f must not throw. Threads take pieces
// of the range dynamically, because other work may slow down some of the cores.
template <typename F>
void ForIndices(int threads, int64_t count, const F& f) {
  const int64_t piece = count / (8 * threads) + 1;
#pragma omp parallel for schedule(dynamic, piece) num_threads(threads) if (threads > 1 && count > 1)
  for (int64_t i = 0; i < count; ++i) f(i);
}

// Calls f(begin, end) for ranges of at most `grain` indices, which cover [0, count).
template <typename F>
void ForRanges(int threads, int64_t count, int64_t grain, const F& f) {
  ForIndices(threads, DivideUp(count, grain),
             [&](int64_t i) { f(i * grain, (i + 1) * grain < count ? (i + 1) * grain : count); });
}

inline constexpr int64_t kElementGrain = 1 << 14;  // elements of a task in element-wise loops
inline constexpr int64_t kChannelGrain = 16;       // channels of a task in sums over pixels

// Runs f(i) for the elements i of a tensor.
template <typename F>
void ForElements(int threads, int64_t count, const F& f) {
  ForRanges(threads, count, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace carole::reference
