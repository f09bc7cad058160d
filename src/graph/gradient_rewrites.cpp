// The rewrites of backward operations. rewrites.cpp explains the tables.
//
// FuseGradientSums(): if two nodes read a value, its gradient is a sum of two.
//   sum_in_batch_norm           A batch norm's backward takes the two summands as dy and dy2. It
//                               must store the sum, so this pays only if the sum is stored anyway:
//                               as dresidual, or, if there is no ReLU, for all readers of the sum.
//   addend_in_batch_norm        A batch norm's backward adds the other summand, which must exist by
//                               then, as `addend`.
//
// FuseGradients(): the names stand for the backward operations.
//   relu_before_max_pool        The mask is applied to the smaller, pooled gradient. A maximum
//                               sends its gradient to the pixel whose value it took, so the pooled
//                               y and y at that pixel are equal. The larger y then has no reader in
//                               backward.
//   relu_in_filter_gradient     Masks dy while it is read, if the masked dy has no other reader.
//                               This is so in a net's first layer.
//   relu_in_data_gradient       Masks dx while it is written.
//   *_bias_sum_in_relu          The node that applies the mask also sums the bias's gradient, so
//                               that the filter gradient need not. A max pool may lie between: it
//                               passes each element once, so the sums are the same.
//   slice_in_batch_norm         A slice is the backward of a concatenation. Each batch norm reads
//                               its channels of the whole gradient instead of a copy of them.
//   relu_bitmask_in_batch_norm  Backward reads one bit for each element instead of y.
#include <algorithm>
#include <iterator>
#include <utility>

#include "src/backend/ops/add.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/concat.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/graph/rewrite_table.h"

namespace carole {
namespace {

bool IsFirstReader(const Match& match) {
  const auto& nodes = match.graph.nodes();
  return std::none_of(nodes.begin(), nodes.begin() + match.consumer_id, [&](const Node& node) {
    return !node.dead && std::ranges::count(node.inputs, match.between()) > 0;
  });
}

// Whether the batch norm can store the sum in the place of the add: no node has read it before. A
// ReLU masks dresidual, so then no other node may read the sum at all.
bool CanStoreSum(const Match& match) {
  const Node& norm = match.consumer();
  if (match.producer().inputs.size() != 2 || !IsFirstReader(match)) return false;
  return !norm.attributes.as<BatchNormAttributes>().relu ||
         (norm.outputs[kPosition<BatchNormBackwardOutputs>.dresidual] != kNone &&
          match.readers[match.between()] == 1);
}

Replacement SumInBatchNorm(const Match& match) {
  const Node& add = match.producer();
  Node norm = match.consumer();
  norm.inputs[kPosition<BatchNormBackwardInputs>.dy] = add.inputs[0];
  norm.inputs[kPosition<BatchNormBackwardInputs>.dy2] = add.inputs[1];
  // Without a mask, dresidual is the sum itself: the batch norm makes it for all readers.
  if (!norm.attributes.as<BatchNormAttributes>().relu)
    norm.outputs[kPosition<BatchNormBackwardOutputs>.dresidual] = match.between();
  return {.consumer = std::move(norm)};
}

bool OtherSummandExistsBefore(const Match& match) {
  return match.consumer().inputs.size() == 2 &&
         match.graph.value(match.other_summand()).producer < match.producer_id;
}

Replacement AddendInBatchNorm(const Match& match) {
  Node norm = match.producer();
  norm.inputs[kPosition<BatchNormBackwardInputs>.addend] = match.other_summand();
  norm.outputs[kPosition<BatchNormBackwardOutputs>.dx] = match.consumer().outputs[0];
  return {.producer = std::move(norm)};
}

// Whether the node is the backward of a max pool.
bool HasArgmax(const Node& pool) {
  return pool.kind == op::kPool2dBackward &&
         pool.inputs[kPosition<Pool2dBackwardInputs>.argmax] != kNone;
}

// The max pool of this backward operation.
const Node& ForwardPool(const Match& match, const Node& backward) {
  const ValueId argmax = backward.inputs[kPosition<Pool2dBackwardInputs>.argmax];
  return match.graph.nodes()[match.graph.value(argmax).producer];
}

bool IsMaxPoolOfRelu(const Match& match) {
  return HasArgmax(match.producer()) &&
         ForwardPool(match, match.producer()).inputs[0] ==
             match.consumer().inputs[kPosition<ReluBackwardInputs>.y];
}

// The value between them gets the smaller, pooled shape.
Replacement SwapMaxPoolAndRelu(const Match& match) {
  Node first = match.consumer(), second = match.producer();
  const ValueId maxima = ForwardPool(match, second).outputs[0];
  first.inputs = {std::exchange(second.inputs[kPosition<Pool2dBackwardInputs>.dy], match.between()),
                  maxima};
  second.outputs[0] = std::exchange(first.outputs[0], match.between());
  return {.producer = std::move(first),
          .consumer = std::move(second),
          .between = match.graph.shape(maxima)};
}

bool HasNoCeiling(const Node& relu) { return relu.attributes.as<ReluAttributes>().ceiling == 0; }

Replacement ReluInFilterGradient(const Match& match) {
  const Node& relu = match.producer();
  Node filter = match.consumer();
  filter.inputs[kPosition<FilterGradientInputs>.dy] = relu.inputs[kPosition<ReluBackwardInputs>.dy];
  filter.inputs.push_back(relu.inputs[kPosition<ReluBackwardInputs>.y]);
  return {.consumer = std::move(filter)};
}

Replacement ReluInDataGradient(const Match& match) {
  const Node& relu = match.consumer();
  Node conv = match.producer();
  conv.inputs.push_back(relu.inputs[kPosition<ReluBackwardInputs>.y]);
  conv.outputs = {relu.outputs[kPosition<ReluBackwardOutputs>.dx]};
  return {.producer = std::move(conv)};
}

// Whether the node masks a gradient by a ReLU, so that it can also sum a bias's gradient.
bool AppliesReluMask(const Node& node) {
  return node.kind == op::kReluBackward ||
         (node.kind == op::kConv2dBackwardData &&
          node.inputs.size() > kPosition<Conv2dBackwardDataInputs>.relu_y);
}

// Moves the sum for a bias's gradient from the filter gradient to the node that masked its dy.
bool MoveBiasSumToRelu(const Match& match, Graph& graph, const Backend& backend) {
  static_assert(kPosition<ReluBackwardOutputs>.db == kPosition<Conv2dBackwardDataOutputs>.db);
  const ValueId db = match.consumer().outputs[kPosition<FilterGradientOutputs>.db];
  NodeId relu = match.producer_id;
  if (db == kNone || relu == kNone) return false;
  // A max pool's backward passes each element of the gradient once, so the sums are the same before
  // it.
  if (HasArgmax(match.producer()))
    relu = graph.value(match.producer().inputs[kPosition<Pool2dBackwardInputs>.dy]).producer;
  if (relu == kNone || !AppliesReluMask(graph.nodes()[relu]) ||
      graph.nodes()[relu].outputs.size() > 1)
    return false;
  Node fused = graph.nodes()[relu];
  fused.outputs.push_back(db);
  if (!backend.Supports(graph.Spec(fused))) return false;
  graph.SetProducer(db, relu);
  graph.mutable_nodes()[relu] = std::move(fused);
  graph.mutable_nodes()[match.consumer_id].outputs[kPosition<FilterGradientOutputs>.db] = kNone;
  return true;
}

// Whether the slice begins and ends at a grain of channels, as do those of the whole value.
bool IsSliceOfGrains(const Match& match) {
  constexpr int64_t kGrain = BatchNormAttributes::kSliceGrain;
  const Node& slice = match.consumer();
  return slice.attributes.as<SliceAttributes>().begin % kGrain == 0 &&
         match.graph.shape(slice.outputs[0])[1] % kGrain == 0 &&
         match.graph.shape(match.between())[1] % kGrain == 0;
}

// Fuses a slice into the batch norms' backward that read it as dy, if these are its only readers.
// Slices of this slice must have been fused before.
bool FuseSliceIntoBatchNorms(const Match& match, Graph& graph, const Backend&) {
  Node& slice = graph.mutable_nodes()[match.consumer_id];
  const ValueId whole = match.between(), part = slice.outputs[0];
  std::vector<Node*> norms;
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == op::kBatchNormBackward &&
        node.inputs[kPosition<BatchNormBackwardInputs>.dy] == part)
      norms.push_back(&node);
  }
  if (norms.empty() || CountReaders(graph)[part] != std::ssize(norms)) return false;
  for (Node* norm : norms) {
    norm->inputs[kPosition<BatchNormBackwardInputs>.dy] = whole;
    norm->attributes.as<BatchNormAttributes>().dy_begin +=
        slice.attributes.as<SliceAttributes>().begin;
  }
  slice.dead = true;
  return true;
}

bool CanUseReluBitmask(const Match& match) {
  return CanWriteReluBitmask(match.consumer().attributes.as<BatchNormAttributes>(),
                             match.graph.shape(match.between()));
}

// Lets a batch norm's backward read relu_bitmask instead of y.
bool UseReluBitmask(const Match& match, Graph& graph, const Backend& backend) {
  OpSpec writer = graph.Spec(match.producer()), reader = graph.Spec(match.consumer());
  const TensorSpec relu_bitmask{.shape = ReluBitmaskShape(graph.shape(match.between())),
                                .dtype = DType::kU8};
  writer.outputs.push_back(relu_bitmask);
  reader.inputs[kPosition<BatchNormBackwardInputs>.relu_bitmask] = relu_bitmask;
  reader.inputs[kPosition<BatchNormBackwardInputs>.y].present = false;
  if (!backend.Supports(writer) || !backend.Supports(reader)) return false;
  Node& backward = graph.mutable_nodes()[match.consumer_id];
  backward.inputs[kPosition<BatchNormBackwardInputs>.relu_bitmask] =
      graph.AddOutput(match.producer_id, relu_bitmask.shape, relu_bitmask.dtype);
  backward.inputs[kPosition<BatchNormBackwardInputs>.y] = kNone;
  return true;
}

constexpr Rewrite kGradientSumRewrites[] = {
    {.name = "sum_in_batch_norm",
     .pattern = {op::kAdd, op::kBatchNormBackward, kPosition<BatchNormBackwardInputs>.dy, false},
     .guard = CanStoreSum,
     .replacement = SumInBatchNorm},
    {.name = "addend_in_batch_norm",
     .pattern = {op::kBatchNormBackward, op::kAdd, Pattern::kAnyInput},
     .guard = OtherSummandExistsBefore,
     .replacement = AddendInBatchNorm},
};

constexpr Rewrite kGradientRewrites[] = {
    {.name = "relu_before_max_pool",
     .pattern = {op::kPool2dBackward, op::kReluBackward, kPosition<ReluBackwardInputs>.dy},
     .guard = IsMaxPoolOfRelu,
     .replacement = SwapMaxPoolAndRelu},
    {.name = "relu_in_filter_gradient",
     .pattern = {op::kReluBackward, op::kConv2dBackwardFilter, kPosition<FilterGradientInputs>.dy},
     .guard = [](const Match& match) { return HasNoCeiling(match.producer()); },
     .replacement = ReluInFilterGradient,
     .asks_for_activation_type = true},  // some backends support this in 16 bits only
    {.name = "relu_in_data_gradient",
     .pattern = {op::kConv2dBackwardData, op::kReluBackward, kPosition<ReluBackwardInputs>.dy},
     .guard = [](const Match& match) { return HasNoCeiling(match.consumer()); },
     .replacement = ReluInDataGradient},
    {.name = "conv_bias_sum_in_relu",
     .pattern = {std::nullopt, op::kConv2dBackwardFilter, kPosition<FilterGradientInputs>.dy},
     .apply = MoveBiasSumToRelu},
    {.name = "linear_bias_sum_in_relu",
     .pattern = {std::nullopt, op::kLinearBackwardFilter, kPosition<FilterGradientInputs>.dy},
     .apply = MoveBiasSumToRelu},
    {.name = "slice_in_batch_norm",
     .pattern = {std::nullopt, op::kSlice},
     .guard = IsSliceOfGrains,
     .apply = FuseSliceIntoBatchNorms,
     .starts_at_last_node = true},  // slices of a slice first
    {.name = "relu_bitmask_in_batch_norm",
     .pattern = {op::kBatchNorm, op::kBatchNormBackward, kPosition<BatchNormBackwardInputs>.y,
                 false},
     .guard = CanUseReluBitmask,
     .apply = UseReluBitmask},
};

}  // namespace

RewriteCounts FuseGradientSums(Graph& graph) {
  return ApplyRewrites(kGradientSumRewrites, graph, nullptr);
}

RewriteCounts FuseGradients(Graph& graph, const Backend& backend) {
  return ApplyRewrites(kGradientRewrites, graph, &backend);
}

}  // namespace carole
