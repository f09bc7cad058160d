#include "io/datasets/python_random.h"

#include <gmock/gmock.h>

#include <numeric>

namespace carole::io {
namespace {

using testing::ElementsAre;

std::vector<int> Shuffled(int count, uint32_t seed) {
  std::vector<int> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  PythonRandom(seed).Shuffle(values);
  return values;
}

// The expected values come from Python's random.seed(SEED) and random(), and for shuffling from
// Python 2's loop over random().
TEST(PythonRandom, EqualsPython) {
  PythonRandom random(12345);
  EXPECT_EQ(random.Random(), 0.41661987254534116);
  EXPECT_EQ(random.Random(), 0.010169169457068361);
}

TEST(PythonRandom, ShufflesAsPython2Does) {
  EXPECT_THAT(Shuffled(10, 12345), ElementsAre(1, 3, 9, 5, 8, 7, 2, 6, 0, 4));
  EXPECT_THAT(Shuffled(10, 0), ElementsAre(9, 4, 0, 5, 2, 7, 1, 3, 6, 8));
  const std::vector<int> many = Shuffled(1000, 12345);  // draws more than 624 words
  int64_t sum = 0;
  for (size_t i = 0; i < many.size(); ++i) sum += static_cast<int64_t>(i) * many[i];
  EXPECT_EQ(sum, 246588910);
  EXPECT_THAT(std::vector<int>(many.end() - 5, many.end()), ElementsAre(366, 297, 823, 10, 416));
  EXPECT_TRUE(Shuffled(0, 1).empty());
}

}  // namespace
}  // namespace carole::io
