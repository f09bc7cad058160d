// Most operations of a step are bound by memory bandwidth, so the number of passes over activations
// and gradients decides its time. Each rewrite removes a pass, or moves one to a smaller tensor.
// Rewrites change results by rounding at most.
//
// A rewrite is a row of a table (rewrite_table.h). Its pattern names two adjacent nodes: a producer
// and the consumer of its result. With few exceptions, the value between them must have no other
// reader; marked outputs count as readers too. The row's guard looks closer. Its replacement says
// what the two nodes become; in most rows, one node remains and the other one is removed. Nodes run
// in the graph's order, so the new node must come after all its inputs. Rows are applied in the
// order of the table, each to the whole graph.
//
// These are the rows of Fuse(). gradient_rewrites.cpp has the others.
//
//   average_after_conv  The two are swapped if the pool keeps the image's size and the convolution
//                       reduces the number of channels. The average then runs over fewer channels.
//                       The order does not matter, because both are linear: one acts on pixels, the
//                       other one on channels.
//   *_add               The kernel adds the other summand as `residual`. If both summands have such
//                       a producer, the later one takes the add.
//   *_relu              The kernel applies the ReLU while it writes y. Only batch norm supports a
//                       ceiling (ReLU6).
// Example, the end of a ResNet v1 block: conv -> batch norm -> add -> ReLU. First the add is fused
// into the batch norm as residual, then the ReLU. One node remains, batch_norm (residual, relu).
// Two tensors are no longer written and read.
#include "src/graph/rewrites.h"

#include <utility>

#include "src/backend/ops/add.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/window.h"
#include "src/graph/rewrite_table.h"

namespace carole {
namespace {

// Whether the convolution is linear, acts on single pixels, and has fewer outputs than inputs. The
// average must keep the image's size.
bool IsAverageBeforeNarrowConv(const Match& match) {
  const Node &pool = match.producer(), &conv = match.consumer();
  if (pool.attributes.as<Pool2dAttributes>().mode != Pool2dAttributes::Mode::kAverage) return false;
  const auto& a = conv.attributes.as<Conv2dAttributes>();
  const Shape &w = match.graph.shape(conv.inputs[kPosition<Conv2dInputs>.w]),
              &y = match.graph.shape(conv.outputs[0]),
              &averaged = match.graph.shape(match.between());
  const bool is_linear = !a.relu && conv.inputs[kPosition<Conv2dInputs>.bias] == kNone &&
                         conv.inputs[kPosition<Conv2dInputs>.residual] == kNone;
  // Weights that a node computes may not exist yet where the pool is.
  const bool has_weights =
      match.graph.value(conv.inputs[kPosition<Conv2dInputs>.w]).variable != kNone;
  const bool is_pointwise = w[2] == 1 && w[3] == 1 && a.stride_h == 1 && a.stride_w == 1 &&
                            a.padding == Padding{} && a.groups == 1;
  return is_linear && has_weights && is_pointwise && y[1] < averaged[1] &&
         averaged == match.graph.shape(pool.inputs[0]);
}

// The value between them gets the convolution's channels.
Replacement SwapAverageAndConv(const Match& match) {
  Node first = match.consumer(), second = match.producer();
  first.inputs[kPosition<Conv2dInputs>.x] = std::exchange(second.inputs[0], match.between());
  second.outputs[0] = std::exchange(first.outputs[0], match.between());
  return {.producer = std::move(first),
          .consumer = std::move(second),
          .between = match.graph.shape(match.consumer().outputs[0])};
}

// The index of the node's residual input if it can take an add: it has neither residual nor ReLU
// yet, which would come after it.
std::optional<int> FreeResidualInput(const Node& node) {
  if (node.kind == op::kBatchNorm && node.inputs[kPosition<BatchNormInputs>.residual] == kNone &&
      !node.attributes.as<BatchNormAttributes>().relu)
    return kPosition<BatchNormInputs>.residual;
  if (node.kind == op::kConv2d && node.inputs[kPosition<Conv2dInputs>.residual] == kNone &&
      !node.attributes.as<Conv2dAttributes>().relu)
    return kPosition<Conv2dInputs>.residual;
  return std::nullopt;
}

// Whether the producer can take an add of two values, and the other summand has no later producer
// that can.
bool IsLastToTakeAdd(const Match& match) {
  if (match.consumer().inputs.size() != 2 || !FreeResidualInput(match.producer())) return false;
  const ValueId other = match.other_summand();
  const NodeId rival = match.graph.value(other).producer;
  return rival < match.producer_id || match.readers[other] != 1 ||
         !FreeResidualInput(match.graph.nodes()[rival]);
}

Replacement AddAsResidual(const Match& match) {
  Node fused = match.producer();
  fused.inputs[*FreeResidualInput(fused)] = match.other_summand();
  fused.outputs[0] = match.consumer().outputs[0];
  return {.consumer = std::move(fused)};
}

double Ceiling(const Node& relu) { return relu.attributes.as<ReluAttributes>().ceiling; }

template <typename Attributes>
bool HasNoReluYet(const Match& match) {
  return !match.producer().attributes.as<Attributes>().relu;
}

template <typename Attributes>
bool TakesPlainRelu(const Match& match) {
  return HasNoReluYet<Attributes>(match) && Ceiling(match.consumer()) == 0;
}

template <typename Attributes>
Replacement WithRelu(const Match& match) {
  Node fused = match.producer();
  auto& attributes = fused.attributes.as<Attributes>();
  attributes.relu = true;
  if constexpr (requires { attributes.ceiling; }) attributes.ceiling = Ceiling(match.consumer());
  fused.outputs[0] = match.consumer().outputs[0];
  return {.consumer = std::move(fused)};
}

constexpr Rewrite kForwardRewrites[] = {
    {.name = "average_after_conv",
     .pattern = {op::kPool2d, op::kConv2d, kPosition<Conv2dInputs>.x},
     .guard = IsAverageBeforeNarrowConv,
     .replacement = SwapAverageAndConv},
    {.name = "batch_norm_add",
     .pattern = {op::kBatchNorm, op::kAdd, Pattern::kAnyInput},
     .guard = IsLastToTakeAdd,
     .replacement = AddAsResidual},
    {.name = "conv_add",
     .pattern = {op::kConv2d, op::kAdd, Pattern::kAnyInput},
     .guard = IsLastToTakeAdd,
     .replacement = AddAsResidual},
    {.name = "batch_norm_relu",
     .pattern = {op::kBatchNorm, op::kRelu},
     .guard = HasNoReluYet<BatchNormAttributes>,
     .replacement = WithRelu<BatchNormAttributes>},
    {.name = "conv_relu",
     .pattern = {op::kConv2d, op::kRelu},
     .guard = TakesPlainRelu<Conv2dAttributes>,
     .replacement = WithRelu<Conv2dAttributes>},
    {.name = "linear_relu",
     .pattern = {op::kLinear, op::kRelu},
     .guard = TakesPlainRelu<LinearAttributes>,
     .replacement = WithRelu<LinearAttributes>},
};

}  // namespace

RewriteCounts Fuse(Graph& graph, const Backend& backend) {
  return ApplyRewrites(kForwardRewrites, graph, &backend);
}

}  // namespace carole
