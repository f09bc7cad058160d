// Batch norm with the statistics of all ranks: ranks together must compute what one rank does with
// the batch of all of them.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"

namespace carole::testing {

// The outputs of forward and backward.
struct Norm {
  std::vector<Elements> rows;        // y and gradients of inputs, one value for each element of x
  std::vector<Elements> statistics;  // the same on all ranks
  std::vector<Elements> parts;       // gradients of parameters, which ranks sum
};

// Runs forward and backward on a batch of `rows` rows.
using RunNormFunction = Norm (*)(const Backend& backend, const RunContext& context, int64_t rows,
                                 const Elements& x, const Elements& dy);

inline constexpr int64_t kNormChannels = 6;
inline constexpr int64_t kNormRowElements = kNormChannels * 3 * 2;
inline Shape NormShape(int64_t rows) { return {rows, kNormChannels, 3, 2}; }

inline Norm RunBatchNorm(const Backend& backend, const RunContext& context, int64_t rows,
                         const Elements& x, const Elements& dy) {
  const BatchNormSizes sizes{.x = NormShape(rows), .attributes = {.decay = 0.9, .relu = true}};
  const Elements gamma = RandomElements(kNormChannels, 3), beta = RandomElements(kNormChannels, 4);
  const Elements zeros(kNormChannels, 0), ones(kNormChannels, 1);
  std::vector<Elements> state;
  const auto forward =
      RunPlain(backend, BatchNormSpec(sizes), {x, gamma, beta, {}, zeros, ones}, context, &state);
  const auto backward = RunPlain(backend, BatchNormBackwardSpec(sizes),
                                 {dy, x, {}, gamma, beta, forward[1], forward[2], {}, {}}, context);
  return {.rows = {forward[0], backward[0]},
          .statistics = {forward[1], forward[2], state[4], state[5]},
          .parts = {backward[1], backward[2]}};
}

// c is half of z.
inline Norm RunFoldedBatchNorm(const Backend& backend, const RunContext& context, int64_t rows,
                               const Elements& z, const Elements& dy) {
  const FoldedBatchNormSizes sizes{.c = NormShape(rows), .attributes = {.decay = 0.9}};
  const Elements gamma = RandomElements(kNormChannels, 3), beta = RandomElements(kNormChannels, 4);
  const Elements zeros(kNormChannels, 0), ones(kNormChannels, 1), rm(kNormChannels, 0.75);
  Elements c = z;
  for (double& v : c) v *= 0.5;
  std::vector<Elements> state;
  const auto forward = RunPlain(backend, FoldedBatchNormSpec(sizes),
                                {c, z, gamma, beta, rm, zeros, ones}, context, &state);
  const auto backward = RunPlain(backend, FoldedBatchNormBackwardSpec(sizes),
                                 {dy, c, z, gamma, rm, forward[1], forward[2]}, context);
  return {.rows = {forward[0], backward[0], backward[1]},
          .statistics = {forward[1], forward[2], state[5], state[6]},
          .parts = {backward[2], backward[3]}};
}

// The elements of a rank that has `rows` rows.
inline Elements PartOfRank(const Elements& whole, int rank, int64_t rows) {
  const auto begin = whole.begin() + rank * rows * kNormRowElements;
  return {begin, begin + rows * kNormRowElements};
}

// Expects that the ranks have computed `whole`.
inline void ExpectSameNorm(const std::vector<Norm>& ranks, const Norm& whole, int64_t rows) {
  const auto near = [](const Elements& want) {
    double largest = 3;
    for (const double v : want) largest = std::max(largest, std::abs(v));
    return ::testing::Pointwise(::testing::DoubleNear(1e-6 * largest), want);
  };
  std::vector<Elements> sums(whole.parts.size(), Elements(kNormChannels, 0));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Norm& part = ranks[rank];
    for (size_t i = 0; i < whole.rows.size(); ++i)
      EXPECT_THAT(part.rows[i], near(PartOfRank(whole.rows[i], static_cast<int>(rank), rows)))
          << "rank " << rank << ", tensor " << i;
    for (size_t i = 0; i < whole.statistics.size(); ++i)
      EXPECT_THAT(part.statistics[i], near(whole.statistics[i])) << "statistic " << i;
    EXPECT_EQ(part.statistics, ranks[0].statistics);
    for (size_t i = 0; i < sums.size(); ++i)
      std::ranges::transform(sums[i], part.parts[i], sums[i].begin(), std::plus<>());
  }
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_THAT(sums[i], near(whole.parts[i]));
}

}  // namespace carole::testing
