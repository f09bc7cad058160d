#include "src/train/integrity/gradient_digest.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/integrity/disturbed_run.h"

namespace carole::train {
namespace {

using carole::testing::FlipBit;
using carole::testing::FullCommunicator;
using carole::testing::RunRanks;
using carole::testing::SmallStep;

constexpr Tolerance kExact{}, kWithin{.is_exact = false, .bound = 1e-3};

// The gradients of a small net, all of them 1, 2, 3, ...
class Gradients {
 public:
  explicit Gradients(FullCommunicator& c) : step_(c, {.optimizer = "sgd"}) { Fill(); }

  VariableStore& store() { return step_.store(); }
  std::span<float> all() { return store().gradients<float>(); }
  // Returns the gradient with this index in ready order.
  std::span<float> at(size_t index) {
    const VariableSlice& p = store().variables()[store().ready_order()[index]];
    return all().subspan(static_cast<size_t>(p.offset), static_cast<size_t>(p.tf_shape.size()));
  }
  size_t size() { return store().ready_order().size(); }
  void Fill() {
    for (size_t i = 0; i < size(); ++i) {
      float next = 1;
      for (float& value : at(i)) value = next++;
    }
  }
  GradientDigest Digest() { return DigestGradients(store(), true); }

 private:
  SmallStep step_;
};

TEST(GradientDigestTest, FindsOneFlippedBitInEachGradient) {
  RunRanks(1, [](FullCommunicator& c) {
    Gradients gradients(c);
    const GradientDigest before = gradients.Digest();
    EXPECT_EQ(FirstDifference(before, gradients.Digest(), kExact), std::nullopt);
    for (size_t i = 0; i < gradients.size(); ++i) {
      FlipBit(gradients.at(i).back(), 0);
      EXPECT_EQ(FirstDifference(before, gradients.Digest(), kExact), i);
      EXPECT_EQ(FirstDifference(before, gradients.Digest(), kWithin), std::nullopt) << "rounding";
      gradients.Fill();
      FlipBit(gradients.at(i).back(), 29);  // of the exponent
      EXPECT_EQ(FirstDifference(before, gradients.Digest(), kWithin), i);
      EXPECT_EQ(FirstDifference(gradients.Digest(), before, kWithin), i);
      gradients.Fill();
    }
  });
}

// All gradients are changed by a fraction of their values.
TEST(GradientDigestTest, TheBoundIsRelativeToTheNorm) {
  RunRanks(1, [](FullCommunicator& c) {
    Gradients gradients(c);
    const GradientDigest before = gradients.Digest();
    const auto change = [&](float fraction) {
      gradients.Fill();
      for (size_t i = 0; float& value : gradients.all())
        value *= 1 + (i++ % 2 == 0 ? fraction : -fraction);
      return FirstDifference(before, gradients.Digest(), kWithin).has_value();
    };
    EXPECT_FALSE(change(3e-4F));
    EXPECT_TRUE(change(3e-3F));
  });
}

TEST(GradientDigestTest, ValuesThatAreNotFiniteAreEqual) {
  RunRanks(1, [](FullCommunicator& c) {
    Gradients gradients(c);
    const GradientDigest before = gradients.Digest();
    gradients.at(1)[0] = INFINITY;
    const GradientDigest infinite = gradients.Digest();
    EXPECT_EQ(FirstDifference(infinite, infinite, kExact), std::nullopt);
    EXPECT_TRUE(FirstDifference(before, infinite, kWithin).has_value());
    gradients.at(1)[0] = NAN;
    EXPECT_TRUE(FirstDifference(infinite, gradients.Digest(), kExact).has_value());
    EXPECT_FALSE(FirstDifference(infinite, gradients.Digest(), kWithin).has_value());
  });
}

}  // namespace
}  // namespace carole::train
