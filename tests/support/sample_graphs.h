// Small graphs that contain every combination of readers and writers that the compiler, the
// rewrites and autodiff must handle.
#pragma once

#include <memory>

#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/pool2d.h"
#include "src/graph/autodiff.h"
#include "src/graph/rewrites.h"
#include "tests/support/sketch.h"

namespace carole::testing {

struct SampleGraph {
  const char* name;
  void (*build)(Sketch& s);
};

// A ResNet: residual blocks with and without projection, batch norms on either side of the sum.
inline void BuildResidual(Sketch& s) {
  const ValueId x = s.graph.AddInput("images", {4, 3, 12, 12}, s.graph.compute());
  ValueId y = s.Conv(x, "root", 16, 3, {.stride_h = 2, .stride_w = 2, .padding = {1, 1, 1, 1}});
  y = s.Relu(s.BatchNorm(y, "root_norm"));
  y = s.Pool(y,
             {.window_h = 3, .window_w = 3, .stride_h = 1, .stride_w = 1, .padding = {1, 1, 1, 1}});
  const ValueId shortcut = s.BatchNorm(s.Conv(y, "shortcut", 20, 1), "shortcut_norm");
  ValueId z = s.Relu(s.BatchNorm(s.Conv(y, "a1", 16, 3, {.padding = {1, 1, 1, 1}}), "a1_norm"));
  z = s.BatchNorm(s.Conv(z, "a2", 20, 1), "a2_norm");
  y = s.Relu(s.Add(shortcut, z));
  z = s.BatchNorm(s.Conv(y, "b1", 20, 3, {.padding = {1, 1, 1, 1}}), "b1_norm");
  y = s.Relu(s.Add(z, y));
  s.Head(s.Pool(y, {.mode = Pool2dAttributes::Mode::kAverage, .window_h = 6, .window_w = 6}));
}

// Gradients that are added at a batch norm: residual units in sequence. Their batch norm comes
// first (ResNet v2), or last with a ReLU after it (ResNet v1), or last without (MobileNet v2).
enum class Unit { kNormFirst, kNormLast, kLinear };
template <Unit kUnit>
void BuildUnits(Sketch& s) {
  const ValueId x = s.graph.AddInput("images", {4, 3, 6, 6}, s.graph.compute());
  ValueId y = s.BatchNorm(s.Conv(x, "root", 8, 1), "root_norm");
  for (const std::string name : {"a", "b", "c"}) {
    ValueId z = y;
    if (kUnit == Unit::kNormFirst) z = s.Relu(s.BatchNorm(z, name + "_norm"));
    z = s.Conv(z, name, 8, 3, {.padding = {1, 1, 1, 1}});
    if (kUnit != Unit::kNormFirst) z = s.BatchNorm(z, name + "_norm");
    y = s.Add(y, z);
    if (kUnit == Unit::kNormLast) y = s.Relu(y);
  }
  s.Head(s.Pool(y, {.mode = Pool2dAttributes::Mode::kAverage, .window_h = 6, .window_w = 6}));
}

// LeNet-like: convolution, pool, LRN, dropout, fully connected layers.
inline void BuildPlain(Sketch& s) {
  const ValueId x = s.graph.AddInput("images", {4, 1, 10, 10}, s.graph.compute());
  ValueId y = s.Relu(s.Conv(x, "conv1", 8, 3, {}, true));
  y = ops::Lrn(s.graph, s.Pool(y), {});
  y = ops::Dropout(s.graph, s.Flatten(y), {.keep = 0.7, .layer = 1});
  y = s.Relu(s.Linear(y, "fc1", 12));
  s.Head(ops::Dropout(s.graph, y, {.keep = 0.5, .layer = 2}));
}

// ReLUs before max pools, with biases. The windows of the first pool overlap.
inline void BuildMaxima(Sketch& s) {
  const ValueId x = s.graph.AddInput("images", {3, 2, 13, 13}, s.graph.compute());
  const Conv2dAttributes same{.padding = {1, 1, 1, 1}};
  ValueId y = s.Relu(s.Conv(x, "conv1", 8, 3, same, true));
  y = s.Pool(y, {.window_h = 3, .window_w = 3, .padding = {1, 1, 1, 1}});
  y = s.Relu(s.Conv(y, "conv2", 6, 3, same, true));
  y = s.Pool(s.Relu(s.Conv(y, "conv3", 5, 3, same, true), 6));
  y = s.Relu(s.Linear(s.Flatten(y), "fc1", 9));
  s.Head(y);
}

// A value that one sum reads twice and other nodes read too, an unused branch, a frozen layer, two
// losses, and outputs in the middle.
inline void BuildTangle(Sketch& s) {
  const ValueId x = s.graph.AddInput("images", {4, 3, 6, 6}, s.graph.compute());
  const ValueId frozen = s.Weight("frozen/weights", {5, 3, 1, 1}, false);
  const ValueId a =
      s.Conv(ops::Conv2d(s.graph, x, frozen, kNone, {}), "a", 6, 3, {.padding = {1, 1, 1, 1}});
  const ValueId twice = s.Add(a, a);
  const ValueId b = s.Relu(a), c = s.Relu(a, 6);
  (void)s.Relu(s.Conv(a, "nowhere", 4, 1));
  s.graph.MarkOutput(a);
  s.graph.MarkOutput(b);
  const ValueId sum = s.Add(s.Add(twice, b), c);
  s.Head(s.Pool(sum), "first");
  s.graph.MarkOutput(sum);
  s.Head(s.Relu(sum), "second", {.smoothing = 0.1, .scale = 0.4});
}

// The gradient of `a` is a sum (d, other, d), which reads d for the last time. If the sum is
// written in place of the first d, it must not be read as the second one.
inline void BuildEcho(Sketch& s) {
  const ValueId x = s.graph.AddInput("images", {4, 4}, s.graph.compute());
  const ValueId a = s.Linear(x, "a", 6);
  const ValueId frozen = ops::Linear(s.graph, x, s.Weight("frozen/weights", {6, 4}, false), kNone);
  const ValueId v = s.Add(frozen, a);
  const ValueId side = s.Relu(a);
  const ValueId u = s.Add(v, a);
  s.Head(s.Add(u, side));
}

// One filter that two convolutions share, grouped convolutions, and numbers of channels that are
// not multiples of a block.
inline void BuildShared(Sketch& s) {
  const ValueId x = s.graph.AddInput("images", {2, 6, 8, 8}, s.graph.compute());
  const ValueId w = s.Weight("shared/weights", {6, 6, 3, 3});
  const Conv2dAttributes same{.padding = {1, 1, 1, 1}};
  ValueId y = s.Relu(ops::Conv2d(s.graph, x, w, kNone, same), 6);
  y = ops::Conv2d(s.graph, y, w, kNone, same);
  y = s.Conv(y, "depthwise", 6, 3,
             {.stride_h = 2, .stride_w = 2, .padding = {1, 1, 1, 1}, .groups = 6});
  y = s.Relu(s.BatchNorm(y, "norm", {}, false), 0.9);
  s.Head(s.Conv(y, "grouped", 4, 1, {.groups = 2}, true));
}

// Concatenations of batch norms and other values. In the second one, the channels of a part are not
// a multiple of a block.
inline void BuildBranches(Sketch& s) {
  const ValueId x = s.graph.AddInput("images", {3, 3, 6, 6}, s.graph.compute());
  const ValueId root = s.Relu(s.BatchNorm(s.Conv(x, "root", 16, 1), "root_norm"));
  const auto branch = [&](const char* name, int64_t channels) {
    return s.BatchNorm(s.Conv(root, name, channels, 1), std::string(name) + "_norm");
  };
  const ValueId a =
      ops::Concat(s.graph, {s.Relu(branch("a1", 16)), s.Relu(branch("a2", 32))});  // nested
  const ValueId b = s.Relu(branch("b", 16), 0.9), c = branch("c", 16);
  const ValueId pool = s.Pool(
      root, {.window_h = 3, .window_w = 3, .stride_h = 1, .stride_w = 1, .padding = {1, 1, 1, 1}});
  const ValueId first = ops::Concat(s.graph, {pool, a, b, c});
  const ValueId second = ops::Concat(s.graph, {branch("d", 16), s.Relu(c), branch("e", 12)});
  s.Head(s.Pool(s.Add(s.Conv(first, "first", 8, 1), s.Conv(second, "second", 8, 1)),
                {.mode = Pool2dAttributes::Mode::kAverage, .window_h = 6, .window_w = 6}));
}

// Average pools before convolutions. The convolutions have fewer or more channels, a bias, groups,
// strides or padding. One average is read twice, and one pool makes the map smaller.
inline void BuildAverages(Sketch& s) {
  const ValueId x = s.graph.AddInput("images", {3, 12, 7, 7}, s.graph.compute());
  const auto average = [&](ValueId value, int64_t stride, int64_t around) {
    return s.Pool(value, {.mode = Pool2dAttributes::Mode::kAverage,
                          .window_h = 3,
                          .window_w = 3,
                          .stride_h = stride,
                          .stride_w = stride,
                          .padding = {around, around, around, around}});
  };
  const ValueId root = s.Relu(s.Conv(x, "root", 12, 1));
  const auto branch = [&](const char* name, int64_t channels, const Conv2dAttributes& a = {},
                          bool bias = false, int64_t around = 1) {
    return s.Conv(average(root, 1, around), name, channels, 1, a, bias);
  };
  const ValueId fewer = s.Relu(s.BatchNorm(branch("fewer", 8), "fewer_norm"));
  const ValueId twice = average(root, 1, 1);
  const ValueId y =
      ops::Concat(s.graph, {fewer, s.Conv(branch("more", 16), "again", 8, 1),
                            branch("bias", 8, {}, true), branch("groups", 8, {.groups = 2}),
                            branch("padding", 8, {.padding = {1, 1, 1, 1}}, false, 0),
                            s.Add(s.Conv(twice, "twice", 12, 1), twice)});
  const ValueId strides = branch("strides", 8, {.stride_h = 2, .stride_w = 2});
  s.Head(s.Add(s.Conv(average(y, 2, 1), "last", 8, 1), strides));
}

inline constexpr SampleGraph kSampleGraphs[] = {{"residual", BuildResidual},
                                                {"plain", BuildPlain},
                                                {"maxima", BuildMaxima},
                                                {"tangle", BuildTangle},
                                                {"echo", BuildEcho},
                                                {"shared", BuildShared},
                                                {"branches", BuildBranches},
                                                {"averages", BuildAverages},
                                                {"norm_first", BuildUnits<Unit::kNormFirst>},
                                                {"norm_last", BuildUnits<Unit::kNormLast>},
                                                {"linear", BuildUnits<Unit::kLinear>}};

// Builds and differentiates the graph. If a backend is given, also fuses it for this backend.
inline std::unique_ptr<Graph> MakeTraining(const SampleGraph& sample, DType compute,
                                           const Backend* fuse_for = nullptr) {
  auto graph = std::make_unique<Graph>(compute);
  Sketch sketch(*graph);
  sample.build(sketch);
  if (fuse_for != nullptr) Fuse(*graph, *fuse_for);
  Differentiate(*graph);
  if (fuse_for != nullptr) FuseGradients(*graph, *fuse_for);
  return graph;
}

}  // namespace carole::testing
