#include "src/graph/rewrites.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "src/backend/host/backend.h"
#include "src/backend/ops/add.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/concat.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/graph_runner.h"
#include "tests/support/reference.h"
#include "tests/support/sample_graphs.h"

namespace carole::testing {
namespace {

int Live(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                        [](const Node& n) { return !n.dead; }));
}

struct Fixture {
  Graph g;
  Sketch s{g};
  ValueId x = g.AddInput("x", {2, 4, 5, 5}, DType::kF32);
};

TEST(Rewrites, FusesReluIntoBatchNorm) {
  for (double ceiling : {0.0, 6.0}) {
    Fixture f;
    f.g.MarkOutput(f.s.Relu(f.s.BatchNorm(f.x, "norm"), ceiling));
    const RewriteCounts counts = Fuse(f.g, Reference());
    EXPECT_EQ(counts.at("batch_norm_relu"), 1);
    ASSERT_EQ(Live(f.g), 1);
    const auto& norm = f.g.nodes().back().attributes.as<BatchNormAttributes>();
    EXPECT_TRUE(norm.relu);
    EXPECT_EQ(norm.ceiling, ceiling);
    EXPECT_EQ(f.g.nodes().back().outputs[0], f.g.outputs()[0]);
  }
}

// The batch norm may be either operand of the add. The other one becomes the residual.
TEST(Rewrites, FusesAddAndReluIntoBatchNorm) {
  for (bool norm_first : {true, false}) {
    for (bool relu : {true, false}) {
      Fixture f;
      const ValueId norm = f.s.BatchNorm(f.x, "norm");
      const ValueId sum = norm_first ? f.s.Add(norm, f.x) : f.s.Add(f.x, norm);
      f.g.MarkOutput(relu ? f.s.Relu(sum) : sum);
      const RewriteCounts counts = Fuse(f.g, Reference());
      EXPECT_EQ(counts.at("batch_norm_add"), 1);
      EXPECT_EQ(counts.at("batch_norm_relu"), relu ? 1 : 0);
      ASSERT_EQ(Live(f.g), 1);
      EXPECT_EQ(f.g.nodes().back().inputs[kPosition<BatchNormInputs>.residual], f.x);
      EXPECT_EQ(f.g.nodes().back().attributes.as<BatchNormAttributes>().relu, relu);
    }
  }
}

// The later batch norm adds the earlier one's result, in either order of the operands.
TEST(Rewrites, LaterBatchNormTakesTheAdd) {
  for (bool later_first : {true, false}) {
    Fixture f;
    const ValueId early = f.s.BatchNorm(f.x, "early"), late = f.s.BatchNorm(f.x, "late");
    f.g.MarkOutput(later_first ? f.s.Add(late, early) : f.s.Add(early, late));
    EXPECT_EQ(Fuse(f.g, Reference()).at("batch_norm_add"), 1);
    ASSERT_EQ(Live(f.g), 2);
    EXPECT_EQ(f.g.nodes().back().name, "late");
    EXPECT_EQ(f.g.nodes().back().inputs[kPosition<BatchNormInputs>.residual], early);
  }
}

TEST(Rewrites, FusesAddAndReluIntoConvolution) {
  for (bool relu : {true, false}) {
    Fixture f;
    const ValueId sum = f.s.Add(f.x, f.s.Conv(f.x, "conv", 4, 1, {}, true));
    f.g.MarkOutput(relu ? f.s.Relu(sum) : sum);
    const RewriteCounts counts = Fuse(f.g, Reference());
    EXPECT_EQ(counts.at("conv_add"), 1);
    EXPECT_EQ(counts.at("conv_relu"), relu ? 1 : 0);
    ASSERT_EQ(Live(f.g), 1);
    EXPECT_EQ(f.g.nodes().back().inputs[kPosition<Conv2dInputs>.residual], f.x);
    EXPECT_EQ(f.g.nodes().back().attributes.as<Conv2dAttributes>().relu, relu);
  }
}

TEST(Rewrites, OneConvolutionTakesOneAdd) {
  Fixture f;
  const ValueId sum = f.s.Add(f.s.Conv(f.x, "conv", 4, 1), f.x);
  f.g.MarkOutput(f.s.Add(sum, f.s.Relu(f.x)));
  EXPECT_EQ(Fuse(f.g, Reference()).at("conv_add"), 1);
  EXPECT_EQ(Live(f.g), 3);
}

TEST(Rewrites, FusesReluIntoConvolutionAndLinear) {
  Fixture f;
  const ValueId y = f.s.Relu(f.s.Conv(f.x, "conv", 6, 3, {}, true));
  f.g.MarkOutput(f.s.Relu(f.s.Linear(f.s.Flatten(y), "fc", 7)));
  const RewriteCounts counts = Fuse(f.g, Reference());
  EXPECT_EQ(counts.at("conv_relu"), 1);
  EXPECT_EQ(counts.at("linear_relu"), 1);
  EXPECT_EQ(Live(f.g), 3) << "convolution, reshape, linear";
}

TEST(Rewrites, KeepsWhatCannotBeFused) {
  auto unchanged = [](const char* what, auto build) {
    Fixture f;
    build(f);
    const int before = Live(f.g);
    const RewriteCounts counts = Fuse(f.g, Reference());
    EXPECT_EQ(Live(f.g), before) << what;
    for (const auto& [name, count] : counts) EXPECT_EQ(count, 0) << what << ": " << name;
  };
  unchanged("a marked output", [](Fixture& f) {
    const ValueId norm = f.s.BatchNorm(f.x, "norm");
    f.g.MarkOutput(norm);
    f.g.MarkOutput(f.s.Relu(norm));
  });
  unchanged("a second reader", [](Fixture& f) {
    const ValueId conv = f.s.Conv(f.x, "conv", 4, 1);
    f.g.MarkOutput(f.s.Add(f.s.Relu(conv), conv));
  });
  unchanged("a convolution and ReLU6",
            [](Fixture& f) { f.g.MarkOutput(f.s.Relu(f.s.Conv(f.x, "conv", 4, 1), 6)); });
  unchanged("ReLU of an input", [](Fixture& f) { f.g.MarkOutput(f.s.Relu(f.x)); });
  unchanged("a sum of the same value", [](Fixture& f) {
    const ValueId p = f.s.Pool(f.x);
    f.g.MarkOutput(f.s.Relu(f.s.Add(p, p)));
  });
}

// ReLU(norm) is one kernel. The add after it must not be fused, because the ReLU comes first.
TEST(Rewrites, DoesNotFuseAnAddAfterRelu) {
  Fixture f;
  f.g.MarkOutput(f.s.Add(f.s.Relu(f.s.BatchNorm(f.x, "norm")), f.x));
  const RewriteCounts counts = Fuse(f.g, Reference());
  EXPECT_EQ(counts.at("batch_norm_relu"), 1);
  EXPECT_EQ(counts.at("batch_norm_add"), 0);
  EXPECT_EQ(Live(f.g), 2);
}

// Gradients are added at the inputs of three units. The batch norm that made a unit's input takes
// the two gradients (dy2). If the unit begins with a batch norm, its backward adds the other
// gradient (addend).
TEST(Rewrites, FusesGradientSumsIntoBatchNorms) {
  for (const auto& [name, sums] : std::map<std::string, std::pair<int, int>>{
           {"norm_first", {1, 2}}, {"norm_last", {3, 0}}, {"linear", {3, 0}}}) {
    const auto* sample = std::ranges::find(kSampleGraphs, name, &SampleGraph::name);
    ASSERT_NE(sample, std::end(kSampleGraphs));
    Graph g;
    Sketch s(g);
    sample->build(s);
    Fuse(g, Reference());
    const RewriteCounts counts = Differentiate(g);
    EXPECT_EQ(counts.at("sum_in_batch_norm"), sums.first) << name;
    EXPECT_EQ(counts.at("addend_in_batch_norm"), sums.second) << name;
    const auto is_sum = [](const Node& n) {
      return !n.dead && n.phase == Phase::kBackward && n.kind == op::kAdd;
    };
    EXPECT_TRUE(std::ranges::none_of(g.nodes(), is_sum)) << name;
  }
}

// The sum has a reader before the batch norm, or it has another reader and the batch norm has a
// mask, which that reader must not see.
TEST(Rewrites, KeepsGradientSumsWithOtherReaders) {
  for (const bool relu : {false, true}) {
    Graph g;
    const auto value = [&] { return g.AddInput("", {2, 4, 5, 5}, DType::kF32); };
    const auto add = [&](ValueId a, ValueId b) {
      return g.AddNode({.kind = op::kAdd, .inputs = {a, b}}, {{g.shape(a), DType::kF32}})
          .outputs[0];
    };
    const ValueId x = value(), dy = add(value(), value());
    if (!relu) g.MarkOutput(add(dy, x));
    g.AddNode({.kind = op::kBatchNormBackward,
               .attributes = BatchNormAttributes{.relu = relu},
               .inputs = {dy, x, x, kNone, kNone, value(), value(), kNone, kNone}},
              {{g.shape(x), DType::kF32},
               {{4}, DType::kF32, false},
               {{4}, DType::kF32, false},
               {g.shape(x), DType::kF32, relu}});
    if (relu) g.MarkOutput(add(dy, x));
    EXPECT_EQ(FuseGradientSums(g).at("sum_in_batch_norm"), 0);
  }
}

// Backward does not read the larger maps. Nodes that apply a mask sum the gradients of biases.
TEST(Rewrites, MasksBeforeMaxPoolsAndSumsBiases) {
  Graph g;
  Sketch s(g);
  BuildMaxima(s);
  Fuse(g, Reference());
  Differentiate(g);
  const RewriteCounts counts = FuseGradients(g, Reference());
  EXPECT_EQ(counts.at("relu_before_max_pool"), 2);
  EXPECT_EQ(counts.at("relu_in_data_gradient"), 2);
  EXPECT_EQ(counts.at("conv_bias_sum_in_relu"), 3);
  EXPECT_EQ(counts.at("linear_bias_sum_in_relu"), 1);
  for (const Node& node : g.nodes()) {
    if (!node.dead && node.kind == op::kReluBackward) {
      EXPECT_EQ(g.shape(node.inputs[0]), g.shape(node.inputs[1])) << node.name;
      EXPECT_LT(g.shape(node.outputs[0])[2], 13) << node.name;
    }
    const bool is_filter_gradient =
        node.kind == op::kConv2dBackwardFilter || node.kind == op::kLinearBackwardFilter;
    if (is_filter_gradient && node.outputs[kPosition<FilterGradientOutputs>.db] != kNone) {
      EXPECT_EQ(node.name, "head") << "has a ReLU's backward before it";
    }
  }
}

// A backend whose convolutions cannot apply the mask of a ReLU.
struct BackendWithoutMasks final : host::HostBackend {
  BackendWithoutMasks() : HostBackend(1) {}
  std::string_view name() const override { return "without_masks"; }
  bool Supports(const OpSpec& spec) const override {
    return Reference().Supports(spec) && !HasReluYInput(spec);
  }
  std::unique_ptr<Kernel> MakeKernel(const OpSpec& spec) const override {
    return Reference().MakeKernel(spec);
  }
};

// A convolution's data gradient applies the mask of the ReLU before it, also if a max pool lies
// between. It does not if the gradient has other readers, for ReLU6, or if the backend has no such
// kernel.
TEST(Rewrites, DataGradientsMaskTheirResult) {
  using Build = ValueId (*)(Sketch&, ValueId x);
  const auto count = [](Build build, const Backend& backend) {
    Fixture f;
    f.s.Head(build(f.s, f.s.Conv(f.s.Conv(f.x, "first", 4, 1), "a", 4, 1)));
    Fuse(f.g, backend);
    Differentiate(f.g);
    return FuseGradients(f.g, backend).at("relu_in_data_gradient");
  };
  const Build chain = [](Sketch& s, ValueId x) { return s.Conv(s.Relu(x), "b", 4, 3); };
  EXPECT_EQ(count(chain, Reference()), 1);
  EXPECT_EQ(count(chain, BackendWithoutMasks()), 0);
  EXPECT_EQ(
      count([](Sketch& s, ValueId x) { return s.Conv(s.Relu(x, 6), "b", 4, 3); }, Reference()), 0);
  EXPECT_EQ(count(
                [](Sketch& s, ValueId x) {
                  const ValueId relu = s.Relu(x);
                  return s.Add(s.Conv(relu, "b", 4, 1), s.Conv(relu, "c", 4, 1));
                },
                Reference()),
            0);
  EXPECT_EQ(
      count([](Sketch& s, ValueId x) { return s.Conv(s.Pool(s.Relu(x)), "b", 4, 1); }, Reference()),
      1);
}

// In the first layer, only the filter gradient reads dy, so it can apply the mask itself. It does
// not in later layers, for ReLU6, or if the backend has no such kernel.
TEST(Rewrites, FilterGradientOfTheFirstLayerMasksDy) {
  const auto count = [](bool is_first, double ceiling, const Backend& backend) {
    Fixture f;
    const ValueId x = is_first ? f.x : f.s.Conv(f.x, "first", 4, 1);
    f.s.Head(f.s.Conv(f.s.Relu(f.s.Conv(x, "a", 8, 1), ceiling), "b", 4, 3));
    Fuse(f.g, backend);
    Differentiate(f.g);
    return FuseGradients(f.g, backend).at("relu_in_filter_gradient");
  };
  EXPECT_EQ(count(true, 0, Reference()), 1);
  EXPECT_EQ(count(false, 0, Reference()), 0);
  EXPECT_EQ(count(true, 6, Reference()), 0);
  EXPECT_EQ(count(true, 0, BackendWithoutMasks()), 0);
  const auto gpu = MakeEmulatedCudaBackend(1);
  EXPECT_EQ(count(true, 0, *gpu), 0) << "in fp32";
  gpu->SetPrecision(Precision::kBf16);
  EXPECT_EQ(count(true, 0, *gpu), 1);
}

// The pool is an average; or the ReLU's result has another reader; or the pool reads another value.
TEST(Rewrites, KeepsMasksAfterOtherPools) {
  using Build = ValueId (*)(Sketch&, ValueId relu);
  const Build builds[] = {
      [](Sketch& s, ValueId relu) {
        return s.Pool(relu, {.mode = Pool2dAttributes::Mode::kAverage});
      },
      [](Sketch& s, ValueId relu) {
        return s.Add(s.Pool(relu), s.Conv(relu, "b", 4, 2, {.stride_h = 2, .stride_w = 2}));
      },
      [](Sketch& s, ValueId relu) { return s.Pool(ops::Scale(s.graph, relu, 2)); },
  };
  for (const Build build : builds) {
    Fixture f;
    f.s.Head(build(f.s, f.s.Relu(f.s.Conv(f.x, "a", 4, 1))));
    Differentiate(f.g);
    EXPECT_EQ(FuseGradients(f.g, Reference()).at("relu_before_max_pool"), 0);
  }
}

// The gradient of the first concatenation has slices for a, which is itself a concatenation, and
// for b. Their batch norms read the whole gradient instead of the slices.
TEST(Rewrites, BatchNormsReadTheirChannelsOfAConcatenation) {
  Graph g;
  Sketch s(g);
  BuildBranches(s);
  Fuse(g, Reference());
  Differentiate(g);
  EXPECT_EQ(FuseGradients(g, Reference()).at("slice_in_batch_norm"), 4);
  std::map<std::string, int64_t> begins;
  int slices = 0;
  for (const Node& node : g.nodes()) {
    slices += !node.dead && node.kind == op::kSlice;
    if (node.kind != op::kBatchNormBackward) continue;
    const ValueId dy = node.inputs[kPosition<BatchNormBackwardInputs>.dy];
    if (g.shape(dy)[1] == 96)
      begins[node.name] = node.attributes.as<BatchNormAttributes>().dy_begin;
  }
  const std::map<std::string, int64_t> want = {{"a1_norm", 16}, {"a2_norm", 32}, {"b_norm", 64}};
  EXPECT_EQ(begins, want);
  EXPECT_EQ(slices, 2 + 3) << "the pool's; c's, which is added to another; and of 44 channels";
}

// If the number of channels is a multiple of 8 and the backend supports it, backward reads a bit
// mask instead of y.
TEST(Rewrites, ReplacesYByABitMask) {
  const auto count = [](void (*build)(Sketch&), const Backend& backend) {
    Graph g;
    Sketch s(g);
    build(s);
    Fuse(g, backend);
    Differentiate(g);
    const int bits = FuseGradients(g, backend).at("relu_bitmask_in_batch_norm");
    for (const Node& node : g.nodes()) {
      if (node.dead || node.kind != op::kBatchNormBackward) continue;
      const auto& in = node.inputs;
      EXPECT_TRUE(in[kPosition<BatchNormBackwardInputs>.relu_bitmask] == kNone ||
                  in[kPosition<BatchNormBackwardInputs>.y] == kNone)
          << node.name;
    }
    return bits;
  };
  EXPECT_EQ(count(BuildUnits<Unit::kNormLast>, Reference()), 3);
  EXPECT_EQ(count(BuildResidual, Reference()), 0) << "20 channels";
  if (!OneDnnAvailable()) return;
  EXPECT_EQ(count(BuildUnits<Unit::kNormLast>, *MakeOneDnnBackend(1)), 0);
}

void ExpectNear(const std::map<std::string, Elements>& got,
                const std::map<std::string, Elements>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) {
    double largest = 1e-3;
    for (double v : values) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(got.at(name)[i], values[i], tolerance * largest) << name << " " << i;
    }
  }
}

void ExpectFusionKeepsResults(const Backend& backend, DType compute, double tolerance) {
  for (const SampleGraph& sample : kSampleGraphs) {
    SCOPED_TRACE(sample.name);
    const auto plain = MakeTraining(sample, compute),
               fused = MakeTraining(sample, compute, &backend);
    const RunContext context{.seed = 3, .step = 4};
    const GraphResult want = GraphRunner(*plain, backend).Run(context);
    const GraphResult got = GraphRunner(*fused, backend).Run(context);
    ASSERT_EQ(got.outputs.size(), want.outputs.size());
    EXPECT_NEAR(got.outputs.back()[0], want.outputs.back()[0],
                tolerance * std::abs(want.outputs.back()[0]));
    ExpectNear(got.gradients, want.gradients, tolerance);
    ExpectNear(got.statistics, want.statistics, tolerance);
  }
}

// The tests below run the sample graphs, so they check only rewrites that apply in one of these.
TEST(Rewrites, EachAppliesInASampleGraph) {
  RewriteCounts sums;
  for (const SampleGraph& sample : kSampleGraphs) {
    Graph g;
    Sketch s(g);
    sample.build(s);
    for (const RewriteCounts& counts :
         {Fuse(g, Reference()), Differentiate(g), FuseGradients(g, Reference())}) {
      for (const auto& [name, count] : counts) sums[name] += count;
    }
  }
  EXPECT_EQ(sums.size(), 15);
  for (const auto& [name, count] : sums) EXPECT_GT(count, 0) << name;
}

TEST(Rewrites, FusionKeepsResultsOfTheReference) {
  ExpectFusionKeepsResults(Reference(), DType::kF64, 1e-12);
}

TEST(Rewrites, FusionKeepsResultsOfOneDnn) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  // Sums of a few hundred terms in fp32, in another order.
  ExpectFusionKeepsResults(*MakeOneDnnBackend(1), DType::kF32, 1e-4);
}

TEST(Rewrites, MovesAveragesToFewerChannels) {
  Graph g;
  Sketch s(g);
  BuildAverages(s);
  EXPECT_EQ(Fuse(g, Reference()).at("average_after_conv"), 1);
  std::map<std::string, int64_t> averaged;  // channels of averages, by the name of their reader
  for (const Node& node : g.nodes()) {
    if (node.dead) continue;
    for (ValueId id : node.inputs) {
      const NodeId producer = id == kNone ? kNone : g.value(id).producer;
      if (producer != kNone && g.nodes()[producer].kind == op::kPool2d)
        averaged[node.name] = g.shape(id)[1];
    }
  }
  EXPECT_EQ(averaged.at("fewer_norm"), 8);
  for (const char* name : {"more", "bias", "groups", "padding", "strides", "twice"})
    EXPECT_EQ(averaged.at(name), 12) << name;
}

TEST(Rewrites, KeepsAveragesThatAreOutputs) {
  Graph g;
  Sketch s(g);
  const ValueId x = g.AddInput("x", {2, 8, 5, 5}, DType::kF32);
  const ValueId average = s.Pool(x, {.mode = Pool2dAttributes::Mode::kAverage,
                                     .window_h = 3,
                                     .window_w = 3,
                                     .stride_h = 1,
                                     .stride_w = 1,
                                     .padding = {1, 1, 1, 1}});
  g.MarkOutput(average);
  g.MarkOutput(s.Conv(average, "conv", 4, 1));
  EXPECT_EQ(Fuse(g, Reference()).at("average_after_conv"), 0);
}

TEST(Rewrites, FusesTheSampleGraphs) {
  Graph residual, plain;
  Sketch s(residual), t(plain);
  BuildResidual(s);
  BuildPlain(t);
  const RewriteCounts counts = Fuse(residual, Reference());
  EXPECT_EQ(counts.at("batch_norm_relu"), 4);  // root, a1, and after both sums
  EXPECT_EQ(counts.at("batch_norm_add"), 2);
  const RewriteCounts plain_counts = Fuse(plain, Reference());
  EXPECT_EQ(plain_counts.at("conv_relu"), 1);
  EXPECT_EQ(plain_counts.at("linear_relu"), 1);
}

}  // namespace
}  // namespace carole::testing
