// Most operations of a step are bound by memory bandwidth, so the number of passes over activations
// and gradients decides its time. Each rewrite below removes a pass, or moves one to a smaller
// tensor. Rewrites change results by rounding at most.
//
// A rewrite looks at two adjacent nodes. With few exceptions it requires that the value between
// them has no other reader; CountUses() counts marked outputs as readers too. It changes one node
// and marks the other one dead. Nodes run in the graph's order, so the fused node must come after
// all its inputs.
//
// Forward, Fuse():
//   batch norm -> ReLU           The kernel applies the ReLU while it writes y.
//   conv, linear -> ReLU         As above.
//   batch norm, conv -> add      The kernel adds the other summand as `residual`. If both summands
//                                have such a producer, the later one takes the add: the residual
//                                must exist when it runs.
//   average pool -> 1x1 conv     The two are swapped if the pool keeps the image's size and the
//                                convolution reduces the number of channels. The average then runs
//                                over fewer channels. The order does not matter, because both are
//                                linear: one acts on pixels, the other one on channels.
// Example, the end of a ResNet v1 block: conv -> batch norm -> add -> ReLU. First the add is fused
// into the batch norm as residual, then the ReLU. One node remains, batch_norm (residual, relu).
// Two tensors are no longer written and read.
//
// Sums of gradients, FuseGradientSums(). If two nodes read a value, its gradient is a sum of two.
//   sum -> batch norm backward   It takes the two summands as dy and dy2. It must store the sum, so
//                                this pays only if the sum is stored anyway: as dresidual, or, if
//                                there is no ReLU, for all readers of the sum.
//   batch norm backward -> sum   It adds the other summand, which must exist by then, as `addend`.
//
// Backward, FuseGradients(). The names stand for the backward operations.
//   max pool -> ReLU             Swapped, so that the mask is applied to the smaller, pooled
//                                gradient. A maximum sends its gradient to the pixel whose value it
//                                took, so the pooled y and y at that pixel are equal. The larger y
//                                then has no reader in backward.
//   ReLU -> filter gradient      Masks dy while it is read, if the masked dy has no other reader.
//                                This is so in a net's first layer.
//   data gradient -> ReLU        Masks dx while it is written.
//   masked gradient -> bias      The node that applies the mask also sums the bias's gradient, so
//                                that the filter gradient need not. A max pool may lie between: it
//                                passes each element once, so the sums are the same.
//   slice -> batch norms         This is the backward of a concatenation. Each batch norm reads its
//                                channels of the whole gradient instead of a copy of them.
//   batch norm's mask            Backward reads one bit for each element (relu_bitmask) instead
//                                of y.
#include "src/graph/rewrites.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "src/graph/precision.h"

namespace carole {
namespace {

// Returns for each value the number of its readers: inputs of nodes, and outputs of the graph.
std::vector<int> CountUses(const Graph& graph) {
  std::vector<int> uses(graph.num_values(), 0);
  for (const Node& node : graph.nodes()) {
    if (node.dead) continue;
    for (ValueId id : node.inputs) {
      if (id != kNone) ++uses[id];
    }
  }
  for (ValueId id : graph.outputs()) ++uses[id];
  return uses;
}

Node* ProducerOf(Graph& graph, ValueId id) {
  const NodeId producer = graph.value(id).producer;
  return producer == kNone ? nullptr : &graph.mutable_nodes()[producer];
}

// Fuses the add that makes dy into node n, the backward of a batch norm. n is the first reader of
// dy, or the only one.
bool FuseSumIntoBatchNorm(Graph& graph, NodeId n, bool is_only_reader) {
  using Back = BatchNormBackwardIndices;
  Node& norm = graph.mutable_nodes()[n];
  const ValueId dy = norm.inputs[Back::kDy];
  Node* const add = ProducerOf(graph, dy);
  if (add == nullptr || add->kind != OpKind::kAdd || add->inputs.size() != 2) return false;
  if (!std::get<BatchNormAttributes>(norm.attributes).relu) {
    // Without a mask, dresidual is the sum itself: n makes it for all readers.
    norm.outputs[Back::kDresidual] = dy;
    graph.SetProducer(dy, n);
  } else if (norm.outputs[Back::kDresidual] == kNone || !is_only_reader) {
    return false;
  }
  norm.inputs[Back::kDy] = add->inputs[0];
  norm.inputs[Back::kDy2] = add->inputs[1];
  add->dead = true;
  return true;
}

// Fuses the add n into the backward of a batch norm that makes one of the summands. That summand,
// dx, must have no other reader and be made after the other summand.
bool FuseAddendIntoBatchNorm(Graph& graph, NodeId n, const std::vector<int>& uses) {
  using Back = BatchNormBackwardIndices;
  Node& add = graph.mutable_nodes()[n];
  if (add.inputs.size() != 2) return false;
  for (int side : {0, 1}) {
    const ValueId dx = add.inputs[side], other = add.inputs[1 - side];
    const NodeId producer = graph.value(dx).producer;
    if (producer == kNone || uses[dx] != 1 || graph.value(other).producer >= producer) continue;
    Node& norm = graph.mutable_nodes()[producer];
    if (norm.kind != OpKind::kBatchNormBackward || norm.outputs[Back::kDx] != dx) continue;
    norm.inputs[Back::kAddend] = other;
    norm.outputs[Back::kDx] = add.outputs[0];
    graph.SetProducer(add.outputs[0], producer);
    add.dead = true;
    return true;
  }
  return false;
}

bool IsMaxPoolBackward(const Node* node) {
  return node != nullptr && node->kind == OpKind::kPool2dBackward &&
         node->inputs[Pool2dBackwardIndices::kArgmax] != kNone;
}

// Swaps a ReLU's backward with the max pool's backward before it. The value between them gets the
// smaller, pooled shape.
bool MoveReluBeforeMaxPool(Graph& graph, Node& relu, const std::vector<int>& uses) {
  const ValueId between = relu.inputs[ReluBackwardIndices::kDy];
  Node* const pool = ProducerOf(graph, between);
  if (!IsMaxPoolBackward(pool) || uses[between] != 1) return false;
  const Node& forward = *ProducerOf(graph, pool->inputs[Pool2dBackwardIndices::kArgmax]);
  if (forward.inputs[0] != relu.inputs[ReluBackwardIndices::kY]) return false;
  const ValueId dx = relu.outputs[ReluBackwardIndices::kDx], maxima = forward.outputs[0];
  std::swap(relu, *pool);
  Node &first = *pool, &second = relu;
  first.inputs = {second.inputs[Pool2dBackwardIndices::kDy], maxima};
  first.outputs = {between};
  second.inputs[Pool2dBackwardIndices::kDy] = between;
  second.outputs = {dx};
  graph.SetShape(between, graph.shape(maxima));
  return true;
}

// Fuses a ReLU's backward into the filter gradient that reads it.
bool FuseReluIntoFilterGradient(Graph& graph, Node& filter, const std::vector<int>& uses,
                                const Backend& backend) {
  const ValueId dy = filter.inputs[FilterGradientIndices::kDy];
  Node* const relu = ProducerOf(graph, dy);
  if (relu == nullptr || relu->kind != OpKind::kReluBackward || uses[dy] != 1 ||
      std::get<ReluAttributes>(relu->attributes).ceiling != 0)
    return false;
  Node fused = filter;
  fused.inputs[FilterGradientIndices::kDy] = relu->inputs[ReluBackwardIndices::kDy];
  fused.inputs.push_back(relu->inputs[ReluBackwardIndices::kY]);
  // Ask about the types that the operation will have: some backends support this in 16 bits only.
  OpSpec spec = graph.Spec(fused);
  spec.inputs[FilterGradientIndices::kDy].dtype = backend.activation_dtype();
  UnifyTypes(spec);
  if (!backend.Supports(spec)) return false;
  filter = std::move(fused);
  relu->dead = true;
  return true;
}

// Fuses a ReLU's backward into the kConv2dBackwardData that it reads.
bool FuseReluIntoDataGradient(Graph& graph, Node& relu, const std::vector<int>& uses,
                              const Backend& backend) {
  const ValueId dy = relu.inputs[ReluBackwardIndices::kDy];
  Node* const conv = ProducerOf(graph, dy);
  if (conv == nullptr || conv->kind != OpKind::kConv2dBackwardData || uses[dy] != 1 ||
      std::get<ReluAttributes>(relu.attributes).ceiling != 0)
    return false;
  Node fused = *conv;
  fused.inputs.push_back(relu.inputs[ReluBackwardIndices::kY]);
  if (!backend.Supports(graph.Spec(fused))) return false;
  fused.outputs = {relu.outputs[ReluBackwardIndices::kDx]};
  graph.SetProducer(fused.outputs[0], graph.value(dy).producer);
  *conv = std::move(fused);
  relu.dead = true;
  return true;
}

// Whether the node masks a gradient by a ReLU, so that it can also sum a bias's gradient.
bool AppliesReluMask(const Node& node) {
  return node.kind == OpKind::kReluBackward ||
         (node.kind == OpKind::kConv2dBackwardData &&
          node.inputs.size() > Conv2dBackwardDataIndices::kReluY);
}

// Moves the sum for a bias's gradient from a filter gradient to the node that masked dy.
bool FuseBiasSumIntoRelu(Graph& graph, Node& filter, const Backend& backend) {
  static_assert(+ReluBackwardIndices::kDb == +Conv2dBackwardDataIndices::kDb);
  const ValueId db = filter.outputs[FilterGradientIndices::kDb];
  if (db == kNone) return false;
  Node* relu = ProducerOf(graph, filter.inputs[FilterGradientIndices::kDy]);
  // A max pool's backward passes each element of the gradient once, so the sums are the same before
  // it.
  if (IsMaxPoolBackward(relu)) relu = ProducerOf(graph, relu->inputs[Pool2dBackwardIndices::kDy]);
  if (relu == nullptr || !AppliesReluMask(*relu) || relu->outputs.size() > 1) return false;
  Node fused = *relu;
  fused.outputs.push_back(db);
  if (!backend.Supports(graph.Spec(fused))) return false;
  graph.SetProducer(db, graph.value(fused.outputs[ReluBackwardIndices::kDx]).producer);
  *relu = std::move(fused);
  filter.outputs[FilterGradientIndices::kDb] = kNone;
  return true;
}

// Fuses a slice into the batch norms' backward that read it as dy, if these are its only readers.
// Slices of this slice must have been fused before.
bool FuseSliceIntoBatchNorms(Graph& graph, Node& slice) {
  using Back = BatchNormBackwardIndices;
  constexpr int64_t kGrain = BatchNormAttributes::kSliceGrain;
  const ValueId whole = slice.inputs[0], part = slice.outputs[0];
  const int64_t begin = std::get<SliceAttributes>(slice.attributes).begin;
  if (begin % kGrain != 0 || graph.shape(part)[1] % kGrain != 0 ||
      graph.shape(whole)[1] % kGrain != 0)
    return false;
  std::vector<Node*> norms;
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == OpKind::kBatchNormBackward && node.inputs[Back::kDy] == part)
      norms.push_back(&node);
  }
  if (norms.empty() || CountUses(graph)[part] != std::ssize(norms)) return false;
  for (Node* norm : norms) {
    norm->inputs[Back::kDy] = whole;
    std::get<BatchNormAttributes>(norm->attributes).dy_begin += begin;
  }
  slice.dead = true;
  return true;
}

// Lets a batch norm's backward read relu_bitmask instead of y.
bool UseReluBitmask(Graph& graph, Node& backward, const Backend& backend) {
  using Back = BatchNormBackwardIndices;
  const ValueId y = backward.inputs[Back::kY];
  if (y == kNone) return false;
  const NodeId forward = graph.value(y).producer;
  const Shape& shape = graph.shape(y);
  if (!CanWriteReluBitmask(std::get<BatchNormAttributes>(backward.attributes), shape)) return false;
  OpSpec writer = graph.Spec(graph.nodes()[forward]), reader = graph.Spec(backward);
  const TensorSpec relu_bitmask{.shape = ReluBitmaskShape(shape), .dtype = DType::kU8};
  writer.outputs.push_back(relu_bitmask);
  reader.inputs[Back::kReluBitmask] = relu_bitmask;
  reader.inputs[Back::kY].present = false;
  if (!backend.Supports(writer) || !backend.Supports(reader)) return false;
  backward.inputs[Back::kReluBitmask] =
      graph.AddOutput(forward, relu_bitmask.shape, relu_bitmask.dtype);
  backward.inputs[Back::kY] = kNone;
  return true;
}

// Swaps a 1x1 convolution with the average pool before it. The value between them gets the
// convolution's channels.
bool MoveAverageAfterConv(Graph& graph, Node& conv, const std::vector<int>& uses) {
  const ValueId between = conv.inputs[Conv2dIndices::kX], y = conv.outputs[0];
  Node* const pool = ProducerOf(graph, between);
  if (pool == nullptr || pool->kind != OpKind::kPool2d || uses[between] != 1 ||
      std::get<Pool2dAttributes>(pool->attributes).mode != Pool2dAttributes::Mode::kAverage)
    return false;
  const auto& a = std::get<Conv2dAttributes>(conv.attributes);
  const Shape &w = graph.shape(conv.inputs[Conv2dIndices::kW]), y_shape = graph.shape(y);
  const bool is_linear = !a.relu && conv.inputs[Conv2dIndices::kBias] == kNone &&
                         conv.inputs[Conv2dIndices::kResidual] == kNone;
  const bool is_pointwise = w[2] == 1 && w[3] == 1 && a.stride_h == 1 && a.stride_w == 1 &&
                            a.padding == Padding{} && a.groups == 1;
  const Shape& averaged = graph.shape(between);
  if (!is_linear || !is_pointwise || y_shape[1] >= averaged[1] ||
      averaged != graph.shape(pool->inputs[0]))
    return false;
  std::swap(conv, *pool);
  Node &first = *pool, &second = conv;
  first.inputs[Conv2dIndices::kX] = std::exchange(second.inputs[0], between);
  first.outputs[0] = between;
  second.outputs[0] = y;
  graph.SetShape(between, y_shape);
  return true;
}

// Runs the rewrites of Fuse().
class Fuser {
 public:
  Fuser(Graph& graph, const Backend& backend)
      : graph_(graph), backend_(backend), uses_(CountUses(graph)) {}

  RewriteCounts Run() {
    for (Node& node : graph_.mutable_nodes()) {
      if (!node.dead && node.kind == OpKind::kConv2d)
        counts_.averages_after_convs += MoveAverageAfterConv(graph_, node, uses_);
    }
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      Node& node = graph_.mutable_nodes()[i];
      if (node.dead) continue;
      if (node.kind == OpKind::kAdd) FuseAdd(node);
      if (node.kind == OpKind::kRelu) FuseRelu(node);
    }
    return counts_;
  }

 private:
  // The node that makes `id` if the value has exactly one reader, else nullptr.
  Node* SoleProducer(ValueId id) { return uses_[id] == 1 ? ProducerOf(graph_, id) : nullptr; }

  // Replaces `producer` and `consumer` by `fused`, at the consumer's position. Returns false and
  // changes nothing if the backend does not support it.
  bool Replace(Node& producer, Node& consumer, Node fused) {
    fused.outputs[0] = consumer.outputs[0];
    if (!backend_.Supports(graph_.Spec(fused))) return false;
    const NodeId consumer_id = graph_.value(consumer.outputs[0]).producer;
    for (ValueId id : fused.outputs) {
      if (id != kNone) graph_.SetProducer(id, consumer_id);
    }
    producer.dead = true;
    consumer = std::move(fused);
    return true;
  }

  // The index of the node's residual input if it is free: the node has neither residual nor ReLU
  // yet, which would come after it.
  static std::optional<size_t> FreeResidualInput(const Node& node) {
    if (node.kind == OpKind::kBatchNorm && node.inputs[BatchNormIndices::kResidual] == kNone &&
        !std::get<BatchNormAttributes>(node.attributes).relu)
      return BatchNormIndices::kResidual;
    if (node.kind == OpKind::kConv2d && node.inputs[Conv2dIndices::kResidual] == kNone &&
        !std::get<Conv2dAttributes>(node.attributes).relu)
      return Conv2dIndices::kResidual;
    return std::nullopt;
  }

  void FuseAdd(Node& add) {
    if (add.inputs.size() != 2) return;
    // The producer that runs later takes the result of the other one as residual.
    NodeId later = kNone;
    for (ValueId id : add.inputs) {
      const Node* producer = SoleProducer(id);
      if (producer != nullptr && FreeResidualInput(*producer))
        later = std::max(later, graph_.value(id).producer);
    }
    if (later == kNone) return;
    Node& producer = graph_.mutable_nodes()[later];
    Node fused = producer;
    const bool is_first = graph_.value(add.inputs[0]).producer == later;
    fused.inputs[*FreeResidualInput(producer)] = add.inputs[is_first ? 1 : 0];
    int& count = fused.kind == OpKind::kConv2d ? counts_.conv_add : counts_.batch_norm_add;
    count += Replace(producer, add, std::move(fused));
  }

  void FuseRelu(Node& relu) {
    const double ceiling = std::get<ReluAttributes>(relu.attributes).ceiling;
    Node* producer = SoleProducer(relu.inputs[0]);
    if (producer == nullptr) return;
    Node fused = *producer;
    if (auto* norm = std::get_if<BatchNormAttributes>(&fused.attributes); norm && !norm->relu) {
      norm->relu = true;
      norm->ceiling = ceiling;
      counts_.batch_norm_relu += Replace(*producer, relu, std::move(fused));
    } else if (ceiling != 0) {
      return;  // only batch norm supports a ceiling
    } else if (auto* conv = std::get_if<Conv2dAttributes>(&fused.attributes);
               conv && !conv->relu && fused.kind == OpKind::kConv2d) {
      conv->relu = true;
      counts_.conv_relu += Replace(*producer, relu, std::move(fused));
    } else if (auto* linear = std::get_if<LinearAttributes>(&fused.attributes);
               linear && !linear->relu && fused.kind == OpKind::kLinear) {
      linear->relu = true;
      counts_.conv_relu += Replace(*producer, relu, std::move(fused));
    }
  }

  Graph& graph_;
  const Backend& backend_;
  std::vector<int> uses_;
  RewriteCounts counts_;
};

}  // namespace

RewriteCounts Fuse(Graph& graph, const Backend& backend) { return Fuser(graph, backend).Run(); }

int FuseGradientSums(Graph& graph) {
  const std::vector<int> uses = CountUses(graph);
  std::vector<bool> was_read(graph.num_values(), false);
  int count = 0;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes().size()); ++n) {
    const Node& node = graph.nodes()[n];
    if (node.dead) continue;
    if (node.kind == OpKind::kBatchNormBackward) {
      const ValueId dy = node.inputs[BatchNormBackwardIndices::kDy];
      if (!was_read[dy]) count += FuseSumIntoBatchNorm(graph, n, uses[dy] == 1);
    }
    for (ValueId id : node.inputs) {
      if (id != kNone) was_read[id] = true;
    }
  }
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes().size()); ++n) {
    const Node& node = graph.nodes()[n];
    if (!node.dead && node.kind == OpKind::kAdd) count += FuseAddendIntoBatchNorm(graph, n, uses);
  }
  return count;
}

GradientRewriteCounts FuseGradients(Graph& graph, const Backend& backend) {
  GradientRewriteCounts counts;
  const std::vector<int> uses = CountUses(graph);
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == OpKind::kReluBackward)
      counts.relu_before_max_pool += MoveReluBeforeMaxPool(graph, node, uses);
  }
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == OpKind::kConv2dBackwardFilter)
      counts.relu_in_filter_gradients += FuseReluIntoFilterGradient(graph, node, uses, backend);
  }
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == OpKind::kReluBackward)
      counts.relu_in_data_gradients += FuseReluIntoDataGradient(graph, node, uses, backend);
  }
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead &&
        (node.kind == OpKind::kConv2dBackwardFilter || node.kind == OpKind::kLinearBackwardFilter))
      counts.bias_sums_in_relu += FuseBiasSumIntoRelu(graph, node, backend);
  }
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    Node& node = graph.mutable_nodes()[i];
    if (!node.dead && node.kind == OpKind::kSlice)
      counts.slices_in_batch_norm += FuseSliceIntoBatchNorms(graph, node);
  }
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == OpKind::kBatchNormBackward)
      counts.relu_bitmasks += UseReluBitmask(graph, node, backend);
  }
  return counts;
}

}  // namespace carole
