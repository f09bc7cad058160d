#include "collectives/reducer/adasum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "collectives/reducer/reducer.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {
namespace {

using collectives::AdasumPair;
using collectives::Range;
using collectives::Reduction;
using Vector = std::vector<double>;

Vector Pair(Vector a, const Vector& b) {
  AdasumPair<double>(a, b);
  return a;
}

TEST(Adasum, AveragesParallelAndAddsOrthogonalGradients) {
  EXPECT_EQ(Pair({2, 4}, {2, 4}), (Vector{2, 4}));
  EXPECT_EQ(Pair({2, 0}, {6, 0}), (Vector{4, 0}));
  EXPECT_EQ(Pair({3, 0}, {0, 5}), (Vector{3, 5}));
}

TEST(Adasum, MatchesAResultComputedByHand) {
  // a.b = 2, |a|^2 = 4, |b|^2 = 2, so the result is 3/4 a + 1/2 b.
  EXPECT_EQ(Pair({2, 0}, {1, 1}), (Vector{2, 0.5}));
}

TEST(Adasum, AZeroGradientLeavesTheOtherUnchanged) {
  EXPECT_EQ(Pair({0, 0}, {1, 2}), (Vector{1, 2}));
  EXPECT_EQ(Pair({1, 2}, {0, 0}), (Vector{1, 2}));
}

// Returns the gradient of a rank: two layers of different scales.
Vector GradientOf(int rank) {
  Vector g;
  for (int i = 0; i < 7; ++i) g.push_back(std::sin(rank * 1.3 + i) * (i < 3 ? 1 : 100));
  return g;
}

// The recursion of the paper, layer by layer.
Vector Expected(const std::vector<Vector>& gradients, const std::vector<Range>& layers) {
  if (gradients.size() == 1) return gradients[0];
  std::vector<Vector> halves;
  for (size_t r = 0; r < gradients.size(); r += 2) {
    Vector joined = gradients[r];
    for (const Range& layer : layers) {
      double ab = 0, aa = 0, bb = 0;
      for (size_t i = layer.offset; i < layer.offset + layer.count; ++i) {
        ab += gradients[r][i] * gradients[r + 1][i];
        aa += gradients[r][i] * gradients[r][i];
        bb += gradients[r + 1][i] * gradients[r + 1][i];
      }
      for (size_t i = layer.offset; i < layer.offset + layer.count; ++i)
        joined[i] = (1 - ab / 2 / aa) * gradients[r][i] + (1 - ab / 2 / bb) * gradients[r + 1][i];
    }
    halves.push_back(joined);
  }
  return Expected(halves, layers);
}

TEST(Adasum, ReducerCombinesLayersOfAllRanksPairwise) {
  const std::vector<Range> layers = {{0, 3}, {3, 4}};
  for (int size : {1, 2, 4}) {
    std::vector<Vector> gradients;
    for (int r = 0; r < size; ++r) gradients.push_back(GradientOf(r));
    const Vector expected = Expected(gradients, layers);
    RunRanks(size, [&](Communicator& c) {
      Vector mine = GradientOf(c.rank());
      collectives::BasicReducer<double> reducer(c, mine, layers, {}, Reduction::kAdasum);
      reducer.BeginStep(0);
      reducer.MarkReady(0);
      reducer.MarkReady(1);
      EXPECT_EQ(reducer.WaitNext(), (Range{0, 7}));
      EXPECT_EQ(reducer.WaitNext(), std::nullopt);
      for (size_t i = 0; i < mine.size(); ++i) EXPECT_NEAR(mine[i], expected[i], 1e-12) << i;
    });
  }
}

TEST(Adasum, ThreeRanksGetTheSameResult) {
  std::vector<Vector> results(3);
  RunRanks(3, [&](Communicator& c) {
    Vector mine = GradientOf(c.rank()), gathered;
    const Range layer{0, mine.size()};
    collectives::AdasumOverRanks<double>(c, mine, {&layer, 1}, gathered, {.what = "test"});
    results[c.rank()] = mine;
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[0], Pair(Pair(GradientOf(0), GradientOf(1)), GradientOf(2)));
}

TEST(Reducer, WithoutReductionEachRankKeepsItsOwnGradients) {
  RunRanks(2, [](Communicator& c) {
    Vector mine = GradientOf(c.rank());
    collectives::BasicReducer<double> reducer(c, mine, {{0, 7}}, {}, Reduction::kNone);
    reducer.BeginStep(0);
    reducer.MarkReady(0);
    EXPECT_EQ(reducer.WaitNext(), (Range{0, 7}));
    EXPECT_EQ(mine, GradientOf(c.rank()));
  });
}

}  // namespace
}  // namespace carole::testing
