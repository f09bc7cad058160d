// The gradient rule of each operation, compared with central differences in double. The gradients
// are computed by the whole program: graph, autodiff and plan. The inputs of the operation are
// variables here, so that the gradient of each input is checked.
#include <gtest/gtest.h>

#include "tests/support/grad_check.h"
#include "tests/support/graph_runner.h"
#include "tests/support/reference.h"
#include "tests/support/sample_graphs.h"

namespace carole::testing {
namespace {

using Build = void (*)(Sketch& s);
using Mode = Pool2dAttributes::Mode;

// Checks the gradients of all trainable variables of the graph that `build` makes, with and without
// fusion. `variables` is the number of trainable variables.
void ExpectGradients(Build build, size_t variables, const RunContext& context = {}) {
  for (bool fuse : {false, true}) {
    SCOPED_TRACE(fuse ? "fused" : "as built");
    Graph g(DType::kF64);
    Sketch s(g);
    build(s);
    if (fuse) Fuse(g, Reference());
    Differentiate(g);
    GraphRunner runner(g, Reference());
    const GraphResult result = runner.Run(context);
    EXPECT_EQ(result.gradients.size(), variables);
    for (const Variable& v : g.variables()) {
      if (!v.trainable) continue;
      const auto f = [&](const Elements& x) {
        runner.SetVariable(v.name, x);
        return runner.Loss(context);
      };
      ExpectGradient(v.name, f, VariableElements(v), result.gradients.at(v.name),
                     {.max_elements = 60});
      runner.SetVariable(v.name, VariableElements(v));
    }
  }
}

TEST(OpGradient, Conv2dWithBiasAndRelu) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Weight("x", {2, 3, 6, 5});
        s.Head(s.Relu(s.Conv(x, "conv", 4, 3, {.padding = {1, 1, 1, 1}}, true)));
      },
      5);
}

TEST(OpGradient, Conv2dStridedAndPaddedUnevenly) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Weight("x", {2, 3, 7, 8});
        const ValueId w = s.Weight("w", {4, 3, 3, 2});
        s.Head(ops::Conv2d(s.graph, x, w, kNone,
                           {.stride_h = 2, .stride_w = 3, .padding = {0, 1, 1, 0}}));
      },
      4);
}

TEST(OpGradient, Conv2dDilatedAndGrouped) {
  ExpectGradients(
      [](Sketch& s) {
        ValueId y = s.Weight("x", {2, 4, 7, 7});
        y = s.Conv(y, "grouped", 6, 3, {.padding = {2, 2, 2, 2}, .dilation = 2, .groups = 2}, true);
        s.Head(s.Conv(y, "depthwise", 6, 3, {.stride_h = 2, .stride_w = 2, .groups = 6}));
      },
      6);
}

TEST(OpGradient, Conv2dOfPixelsAndDepthwiseWithAMultiplier) {
  ExpectGradients(
      [](Sketch& s) {
        ValueId y = s.Conv(s.Weight("x", {1, 5, 6, 5}), "pixels", 3, 1, {}, true);
        y = s.Conv(y, "multiplier", 6, 3,
                   {.stride_h = 2, .stride_w = 2, .padding = {0, 0, 1, 1}, .groups = 3}, true);
        s.Head(y);
      },
      7);
}

TEST(OpGradient, LinearWithAndWithoutBias) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Weight("x", {4, 5});
        s.Head(s.Linear(s.Relu(s.Linear(x, "with", 6)), "without", 4, false));
      },
      6);
}

template <bool kRelu, bool kGamma, bool kBeta>
void BuildBatchNorm(Sketch& s) {
  const ValueId y = s.BatchNorm(s.Weight("x", {3, 4, 3, 2}), "norm", {}, kGamma, kBeta);
  s.Head(kRelu ? s.Relu(y) : y);
}

TEST(OpGradient, BatchNorm) {
  ExpectGradients(BuildBatchNorm<false, true, true>, 5);
  ExpectGradients(BuildBatchNorm<true, true, true>, 5);
  ExpectGradients(BuildBatchNorm<true, false, true>, 4);
  ExpectGradients(BuildBatchNorm<true, true, false>, 4);
  ExpectGradients(BuildBatchNorm<true, false, false>, 3);
}

TEST(OpGradient, BatchNormOfAMatrix) {
  ExpectGradients([](Sketch& s) { s.Head(s.Relu(s.BatchNorm(s.Weight("x", {6, 4}), "norm"))); }, 5);
}

TEST(OpGradient, Gelu) {
  ExpectGradients([](Sketch& s) { s.Head(ops::Gelu(s.graph, s.Weight("x", {3, 6, 2, 2}))); }, 3);
  ExpectGradients([](Sketch& s) { s.Head(ops::Gelu(s.graph, s.Weight("x", {8, 9}), true)); }, 3);
}

TEST(OpGradient, Silu) {
  ExpectGradients([](Sketch& s) { s.Head(ops::Silu(s.graph, s.Weight("x", {3, 6, 2, 2}))); }, 3);
}

TEST(OpGradient, Multiply) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId a = s.Weight("a", {2, 3, 3, 4});
        s.Head(ops::Multiply(s.graph, a, s.Weight("b", {2, 3, 3, 4})));
      },
      4);
  ExpectGradients(
      [](Sketch& s) {
        const ValueId a = s.Weight("a", {2, 5});
        s.Head(ops::Multiply(s.graph, a, a));
      },
      3);
}

// A convolution with a folded batch norm. The moving statistics stay as they are, since finite
// differences run the graph many times.
template <bool kGamma, bool kDepthwise>
void BuildFoldedNorm(Sketch& s) {
  constexpr int64_t kChannels = 4;
  const FoldedBatchNormAttributes attributes{.epsilon = 0.1, .decay = 1};
  const ValueId x = s.Weight("x", {3, kChannels, 4, 3});
  const ValueId w = s.Weight("w", {kChannels, kDepthwise ? 1 : kChannels, 2, 2});
  const ValueId gamma = kGamma ? s.Weight("gamma", {kChannels}) : kNone;
  const ValueId moving_variance = s.Weight("moving_variance", {kChannels}, false);
  const auto folded = ops::FoldWeights(
      s.graph, {.w = w, .gamma = gamma, .moving_variance = moving_variance}, attributes);
  const Conv2dAttributes conv{.groups = kDepthwise ? kChannels : 1};
  s.Head(ops::FoldedBatchNorm(s.graph,
                              {.c = ops::Conv2d(s.graph, x, folded.folded, kNone, conv),
                               .z = ops::Conv2d(s.graph, x, w, kNone, conv),
                               .gamma = gamma,
                               .beta = s.Weight("beta", {kChannels}),
                               .rm = folded.rm,
                               .moving_mean = s.Weight("moving_mean", {kChannels}, false),
                               .moving_variance = moving_variance},
                              attributes));
}

TEST(OpGradient, FoldedBatchNorm) {
  ExpectGradients(BuildFoldedNorm<true, false>, 6);
  ExpectGradients(BuildFoldedNorm<false, false>, 5);
  ExpectGradients(BuildFoldedNorm<true, true>, 6);
}

// The graph has no batch norm, so the gradients of gamma and w come from the folding alone.
TEST(OpGradient, FoldWeights) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Weight("x", {3, 5}), w = s.Weight("w", {4, 5});
        const auto folded =
            ops::FoldWeights(s.graph,
                             {.w = w,
                              .gamma = s.Weight("gamma", {4}),
                              .moving_variance = s.Weight("moving_variance", {4}, false)},
                             {.epsilon = 0.1});
        s.Head(ops::Linear(s.graph, x, folded.folded, kNone));
      },
      5);
}

// Squeeze-excite, as EfficientNet has it.
TEST(OpGradient, SigmoidAsAGate) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Weight("x", {2, 4, 3, 3});
        const ValueId squeezed = s.Pool(
            x,
            {.mode = Mode::kAverage, .window_h = 3, .window_w = 3, .stride_h = 1, .stride_w = 1});
        const ValueId gate = ops::Sigmoid(s.graph, s.Conv(squeezed, "gate", 4, 1, {}, true));
        s.Head(ops::ScaleChannels(s.graph, x, gate));
      },
      5);
}

template <bool kGamma, bool kBeta, bool kFrozenX>
void BuildLayerNorm(Sketch& s) {
  const ValueId gamma = kGamma ? s.Weight("gamma", {5}) : kNone;
  const ValueId beta = kBeta ? s.Weight("beta", {5}) : kNone;
  const ValueId x = s.Weight("x", {2, 5, 3, 2}, !kFrozenX);
  s.Head(ops::LayerNorm(s.graph, {.x = x, .gamma = gamma, .beta = beta}, {.epsilon = 0.1}));
}

TEST(OpGradient, LayerNorm) {
  ExpectGradients(BuildLayerNorm<true, true, false>, 5);
  ExpectGradients(BuildLayerNorm<true, true, true>, 4);
  ExpectGradients(BuildLayerNorm<false, true, false>, 4);
  ExpectGradients(BuildLayerNorm<true, false, false>, 4);
  ExpectGradients(BuildLayerNorm<false, false, false>, 3);
}

TEST(OpGradient, LayerNormOfAMatrix) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Weight("x", {6, 4}), gamma = s.Weight("gamma", {4});
        s.Head(ops::LayerNorm(s.graph, {.x = x, .gamma = gamma, .beta = s.Weight("beta", {4})}));
      },
      5);
}

template <bool kRelu, bool kFrozenResidual>
void BuildResidualNorm(Sketch& s) {
  const ValueId residual = s.Weight("residual", {3, 4, 3, 2}, !kFrozenResidual);
  const ValueId y = s.Add(residual, s.BatchNorm(s.Weight("x", {3, 4, 3, 2}), "norm"));
  s.Head(kRelu ? s.Relu(y) : y);
}

TEST(OpGradient, BatchNormWithResidual) {
  ExpectGradients(BuildResidualNorm<true, false>, 6);
  ExpectGradients(BuildResidualNorm<true, true>, 5);
  ExpectGradients(BuildResidualNorm<false, true>, 5);
}

TEST(OpGradient, SumsOfGradientsFusedIntoBatchNorm) {
  ExpectGradients(BuildUnits<Unit::kNormFirst>, 14);
  ExpectGradients(BuildUnits<Unit::kNormLast>, 14);
  ExpectGradients(BuildUnits<Unit::kLinear>, 14);
}

// Without a ReLU, the gradient of the residual is dy itself. Other operations that read the
// residual then add to it.
TEST(OpGradient, BatchNormWithAResidualThatOthersReadToo) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Conv(s.Weight("x", {3, 4, 3, 2}), "conv", 4, 1);
        const ValueId y = s.Add(s.BatchNorm(x, "norm"), x);
        s.Head(s.Add(s.BatchNorm(y, "next"), y));
      },
      8);
}

TEST(OpGradient, Relu6) {
  ExpectGradients(
      [](Sketch& s) {
        // The values reach about 10, so both ends of the ramp are covered.
        const BatchNormAttributes narrow{.epsilon = 0};
        ValueId y = s.BatchNorm(s.Weight("x", {8, 3, 4, 4}), "norm", narrow);
        for (int i = 0; i < 2; ++i) y = s.Add(y, y);
        s.Head(s.Relu(y, 6));
      },
      5);
}

TEST(OpGradient, AddOfOneValueTwice) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Conv(s.Weight("x", {2, 3, 3, 3}), "conv", 3, 1);
        s.Head(s.Add(s.Add(x, x), s.Relu(x)));
      },
      4);
}

template <Mode kMode>
void BuildPool(Sketch& s) {
  const Pool2dAttributes overlapping{.mode = kMode,
                                     .window_h = 3,
                                     .window_w = 2,
                                     .stride_h = 2,
                                     .stride_w = 1,
                                     .padding = {1, 0, 1, 1}};
  s.Head(s.Pool(s.Pool(s.Weight("x", {2, 3, 7, 6}), overlapping), {.mode = kMode}));
}

TEST(OpGradient, MaxPool) { ExpectGradients(BuildPool<Mode::kMax>, 3); }
TEST(OpGradient, AveragePool) { ExpectGradients(BuildPool<Mode::kAverage>, 3); }

TEST(OpGradient, Lrn) {
  ExpectGradients(
      [](Sketch& s) {
        s.Head(ops::Lrn(s.graph, s.Weight("x", {2, 7, 3, 3}),
                        {.radius = 2, .bias = 1.5, .alpha = 0.3, .beta = 0.75}));
      },
      3);
}

TEST(OpGradient, DropoutWithAFixedMask) {
  ExpectGradients(
      [](Sketch& s) {
        s.Head(ops::Dropout(s.graph, s.Weight("x", {4, 3, 3, 3}), {.keep = 0.6, .layer = 2}));
      },
      3, {.seed = 5, .step = 7, .first_sample = 3});
}

TEST(OpGradient, DropPath) {
  ExpectGradients(
      [](Sketch& s) {
        const DropoutAttributes path{
            .keep = 0.5, .layer = 1, .per_row = true, .schedule_steps = 10};
        s.Head(ops::Dropout(s.graph, s.Weight("x", {6, 3, 2, 2}), path));
      },
      3, {.seed = 3, .step = 4});
}

// Values that go beyond -3 and 3, where hard activations are constant.
ValueId WideX(Sketch& s) { return ops::Scale(s.graph, s.Weight("x", {2, 3, 3, 4}), 10); }

TEST(OpGradient, ScaleAndHardActivations) {
  ExpectGradients([](Sketch& s) { s.Head(ops::HardSwish(s.graph, WideX(s))); }, 3);
  ExpectGradients([](Sketch& s) { s.Head(ops::HardSigmoid(s.graph, WideX(s))); }, 3);
}

TEST(OpGradient, ScaledAdd) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Conv(s.Weight("x", {2, 3, 3, 4}), "conv", 3, 1);
        s.Head(ops::ScaledAdd(s.graph, x, s.Weight("y", {2, 3, 3, 4}), 0.17));
      },
      5);
}

TEST(OpGradient, ScaleChannels) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Weight("x", {2, 3, 3, 4});
        s.Head(ops::ScaleChannels(s.graph, x, s.Weight("factors", {2, 3, 1, 1})));
      },
      4);
}

TEST(OpGradient, ConcatAndPad2d) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId joined =
            ops::Concat(s.graph, {s.Weight("a", {2, 2, 3, 4}), s.Weight("b", {2, 1, 3, 4}),
                                  s.Weight("c", {2, 3, 3, 4})});
        s.Head(ops::Pad2d(s.graph, joined, {-1, 2, 1, -1}));
      },
      5);
}

// A net of squeeze-excite, concatenation, the shifted half of a factorized reduction, drop path and
// a scaled residual.
TEST(OpGradient, OperationsOnChannelsTogether) {
  ExpectGradients(
      [](Sketch& s) {
        Graph& g = s.graph;
        const ValueId images = g.AddInput("images", {4, 2, 5, 5}, g.compute());
        const ValueId a = ops::HardSwish(g, ops::Scale(g, s.Conv(images, "a", 4, 1), 3));
        const ValueId squeezed = s.Pool(
            a,
            {.mode = Mode::kAverage, .window_h = 5, .window_w = 5, .stride_h = 1, .stride_w = 1});
        const ValueId gate = ops::HardSigmoid(g, s.Conv(squeezed, "gate", 4, 1));
        const ValueId excited = ops::ScaleChannels(g, a, gate);
        const ValueId joined = ops::Concat(g, {excited, s.Conv(images, "b", 3, 1), a});
        const ValueId shifted = ops::Pad2d(g, joined, {-1, -1, 1, 1});
        const ValueId dropped = ops::Dropout(
            g, shifted, {.keep = 0.6, .layer = 1, .per_row = true, .schedule_steps = 10});
        s.Head(ops::ScaledAdd(g, dropped, s.Conv(dropped, "up", 11, 1), 0.17));
      },
      6, {.seed = 1, .step = 5});
}

TEST(OpGradient, ReshapeBothWays) {
  ExpectGradients(
      [](Sketch& s) {
        ValueId y = s.Linear(s.Weight("x", {2, 5}), "fc", 12);
        y = ops::Reshape(s.graph, y, {2, 3, 2, 2});
        s.Head(s.Conv(y, "conv", 4, 2));
      },
      6);
}

TEST(OpGradient, SoftmaxCrossEntropySmoothedScaledAndWeighted) {
  ExpectGradients(
      [](Sketch& s) {
        s.Head(s.Weight("x", {4, 5}), "head", {.smoothing = 0.1, .scale = 0.4});
      },
      3);
}

TEST(OpGradient, TwoLosses) {
  ExpectGradients(
      [](Sketch& s) {
        const ValueId x = s.Relu(s.Weight("x", {4, 5}));
        s.Head(x, "main");
        s.Head(x, "aux", {.scale = 0.4});
      },
      5);
}

// Samples with weight 0 do not contribute to the loss and the gradients.
TEST(OpGradient, IsZeroForSamplesWithoutWeight) {
  Graph g(DType::kF64);
  Sketch s(g);
  s.Loss(s.Weight("x", {3, 4}));
  Differentiate(g);
  GraphRunner runner(g, Reference());
  runner.SetInput("weights", {0.5, 0, 0.5});
  const Elements dx = runner.Run().gradients.at("x");  // (C,K) in memory: row n is every third
  for (size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i] == 0, i % 3 == 1) << i;
}

}  // namespace
}  // namespace carole::testing
