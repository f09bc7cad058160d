// The shapes that operations infer, and the errors for shapes that do not fit.
#include <gmock/gmock.h>

#include "src/core/error.h"
#include "tests/support/sketch.h"

namespace carole::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

struct Fixture {
  Graph g;
  Sketch s{g};
  ValueId x = g.AddInput("x", {2, 4, 5, 7}, DType::kF32);
  ValueId m = g.AddInput("m", {2, 6}, DType::kF32);
};

TEST(OpShapes, AreInferred) {
  Fixture f;
  const Conv2dAttributes strided{.stride_h = 2, .stride_w = 3, .padding = {1, 0, 1, 2}};
  EXPECT_EQ(f.g.shape(f.s.Conv(f.x, "a", 8, 3, strided)), (Shape{2, 8, 3, 3}));
  EXPECT_EQ(f.g.shape(f.s.Conv(f.x, "b", 8, 3, {.dilation = 2})), (Shape{2, 8, 1, 3}));
  EXPECT_EQ(f.g.shape(f.s.Pool(f.x)), (Shape{2, 4, 2, 3}));
  EXPECT_EQ(f.g.shape(f.s.Linear(f.m, "c", 3)), (Shape{2, 3}));
  EXPECT_EQ(f.g.shape(f.s.Flatten(f.x)), (Shape{2, 140}));
  EXPECT_EQ(f.g.shape(ops::Softmax(f.g, f.m)), (Shape{2, 6}));
  EXPECT_EQ(f.g.shape(f.s.Loss(f.m)), Shape{});
}

// For instance, max pooling stores the positions of the maxima only in training.
TEST(OpShapes, OptionalOutputsExistOnlyIfNeeded) {
  Fixture f;
  f.s.Pool(f.x, {}, true);
  EXPECT_NE(f.g.nodes().back().outputs[1], kNone);
  f.s.Pool(f.x, {}, false);
  EXPECT_EQ(f.g.nodes().back().outputs[1], kNone);
  f.s.BatchNorm(f.x, "norm", {.training = false});
  EXPECT_EQ(f.g.nodes().back().outputs[kPosition<BatchNormOutputs>.mean], kNone);
}

TEST(OpShapes, ImagesThatAreTooSmallAreUsageErrors) {
  Fixture f;
  EXPECT_THAT(
      [&] {
        f.s.Conv(f.x, "net/conv", 8, 7, {.padding = {0, 0, 1, 0}});
      },
      ThrowsMessage<UsageError>(
          StrEq("[graph] net/conv: the input of this layer is too small: got 5x7 pixels, want at "
                "least 7x7; use a larger \x1f$(train_image_size)")));
  f.g.SetScope("net/pool");
  EXPECT_THAT(
      [&] { f.s.Pool(f.x, {.window_h = 6, .window_w = 2}); },
      ThrowsMessage<UsageError>(HasSubstr(
          "net/pool: the input of this layer is too small: got 5x7 pixels, want at least 6x2")));
}

TEST(OpShapes, MismatchesAreInternalErrors) {
  auto expect = [](auto call, const char* text) {
    Fixture f;
    f.g.SetScope("here");
    EXPECT_THAT([&] { call(f); },
                ThrowsMessage<InternalError>(AllOf(HasSubstr("here"), HasSubstr(text))));
  };
  expect(
      [](Fixture& f) {
        ops::Conv2d(f.g, f.x, f.s.Weight("w", {8, 3, 1, 1}), kNone, {});
      },
      "channels of the input: got 4, want 3");
  expect(
      [](Fixture& f) {
        ops::Conv2d(f.g, f.m, f.s.Weight("w", {8, 3, 1, 1}), kNone, {});
      },
      "conv2d of [2,6] with [8,3,1,1]");
  expect(
      [](Fixture& f) {
        ops::Linear(f.g, f.m, f.s.Weight("w", {3, 5}), kNone);
      },
      "columns of the input: got 6, want 5");
  expect(
      [](Fixture& f) {
        ops::Linear(f.g, f.x, f.s.Weight("w", {3, 5}), kNone);
      },
      "linear of [2,4,5,7] with [3,5]");
  expect([](Fixture& f) { f.s.Add(f.x, f.m); }, "add: got [2,4,5,7], want [2,6]");
  expect([](Fixture& f) { ops::Reshape(f.g, f.m, {2, 7}); }, "reshape to [2,7]: got 14, want 12");
  expect([](Fixture& f) { ops::Softmax(f.g, f.x); }, "softmax of [2,4,5,7]");
  expect([](Fixture& f) { ops::Dropout(f.g, f.x, {.keep = 0}); },
         "dropout with keep probability 0");
  expect([](Fixture& f) { ops::SoftmaxCrossEntropy(f.g, f.m, f.m, f.m, {}); },
         "weights: got [2,6], want [2]");
  expect([](Fixture& f) { ops::SoftmaxCrossEntropy(f.g, f.m, f.x, f.m, {}); },
         "labels: got [2,4,5,7], want [2,6]");
  expect(
      [](Fixture& f) {
        const ValueId c = f.s.Weight("c", {4}), wrong = f.s.Weight("wrong", {5});
        ops::BatchNorm(f.g, {.x = f.x, .gamma = wrong, .moving_mean = c, .moving_variance = c}, {});
      },
      "batch norm of [2,4,5,7]: got [5], want [4]");
}

}  // namespace
}  // namespace carole::testing
