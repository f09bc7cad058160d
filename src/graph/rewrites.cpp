#include "src/graph/rewrites.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "src/graph/precision.h"

namespace carole {
namespace {

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

// Of FuseGradientSums(): the batch norm's backward n, the first or the only reader of its dy.
bool TakeSum(Graph& graph, NodeId n, bool is_only_reader) {
  using Back = BatchNormBackwardPlaces;
  Node& norm = graph.mutable_nodes()[n];
  const ValueId dy = norm.inputs[Back::kDy];
  Node* const add = ProducerOf(graph, dy);
  if (add == nullptr || add->kind != OpKind::kAdd || add->inputs.size() != 2) return false;
  if (!std::get<BatchNormAttributes>(norm.attributes).relu) {  // g is the sum, for all its readers
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

// Of FuseGradientSums(): a sum of which nobody else reads one part, some dx, that comes after the
// other part.
bool AddWhereMade(Graph& graph, NodeId n, const std::vector<int>& uses) {
  using Back = BatchNormBackwardPlaces;
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

bool IsBackwardOfMaximum(const Node* node) {
  return node != nullptr && node->kind == OpKind::kPool2dBackward &&
         node->inputs[Pool2dBackwardPlaces::kArgmax] != kNone;
}

// Of FuseGradients(): a ReLU's backward, and before it a maximum's, of which nobody else reads the
// gradient. They change places; the value between them becomes the smaller one.
bool MaskBeforeMaximum(Graph& graph, Node& relu, const std::vector<int>& uses) {
  const ValueId between = relu.inputs[ReluBackwardPlaces::kDy];
  Node* const pool = ProducerOf(graph, between);
  if (!IsBackwardOfMaximum(pool) || uses[between] != 1) return false;
  const Node& forward = *ProducerOf(graph, pool->inputs[Pool2dBackwardPlaces::kArgmax]);
  if (forward.inputs[0] != relu.inputs[ReluBackwardPlaces::kY]) return false;
  const ValueId dx = relu.outputs[ReluBackwardPlaces::kDx], maxima = forward.outputs[0];
  std::swap(relu, *pool);
  Node &first = *pool, &second = relu;
  first.inputs = {second.inputs[Pool2dBackwardPlaces::kDy], maxima};
  first.outputs = {between};
  second.inputs[Pool2dBackwardPlaces::kDy] = between;
  second.outputs = {dx};
  graph.SetShape(between, graph.shape(maxima));
  return true;
}

// Of FuseGradients(): a filter's gradient, and before it a ReLU's backward for nobody else.
bool MaskInFilterGradient(Graph& graph, Node& filter, const std::vector<int>& uses,
                          const Backend& backend) {
  const ValueId dy = filter.inputs[FilterGradientPlaces::kDy];
  Node* const relu = ProducerOf(graph, dy);
  if (relu == nullptr || relu->kind != OpKind::kReluBackward || uses[dy] != 1 ||
      std::get<ReluAttributes>(relu->attributes).ceiling != 0)
    return false;
  Node fused = filter;
  fused.inputs[FilterGradientPlaces::kDy] = relu->inputs[ReluBackwardPlaces::kDy];
  fused.inputs.push_back(relu->inputs[ReluBackwardPlaces::kY]);
  OpSpec spec = graph.Spec(fused);  // as it will be: there are such kernels for 16 bits alone
  spec.inputs[FilterGradientPlaces::kDy].dtype = backend.activation_dtype();
  UnifyTypes(spec);
  if (!backend.Supports(spec)) return false;
  filter = std::move(fused);
  relu->dead = true;
  return true;
}

// Of FuseGradients(): a ReLU's backward of what a convolution's makes for nobody else.
bool MaskInConvolution(Graph& graph, Node& relu, const std::vector<int>& uses,
                       const Backend& backend) {
  const ValueId dy = relu.inputs[ReluBackwardPlaces::kDy];
  Node* const conv = ProducerOf(graph, dy);
  if (conv == nullptr || conv->kind != OpKind::kConv2dBackwardData || uses[dy] != 1 ||
      std::get<ReluAttributes>(relu.attributes).ceiling != 0)
    return false;
  Node fused = *conv;
  fused.inputs.push_back(relu.inputs[ReluBackwardPlaces::kY]);
  if (!backend.Supports(graph.Spec(fused))) return false;
  fused.outputs = {relu.outputs[ReluBackwardPlaces::kDx]};
  graph.SetProducer(fused.outputs[0], graph.value(dy).producer);
  *conv = std::move(fused);
  relu.dead = true;
  return true;
}

// What masks a gradient by a ReLU, and may sum a bias's beside it.
bool IsMasked(const Node& node) {
  return node.kind == OpKind::kReluBackward ||
         (node.kind == OpKind::kConv2dBackwardData &&
          node.inputs.size() > Conv2dBackwardDataPlaces::kReluY);
}

// Of FuseGradients(): a filter's gradient with that of a bias.
bool SumBiasInRelu(Graph& graph, Node& filter, const Backend& backend) {
  static_assert(+ReluBackwardPlaces::kDb == +Conv2dBackwardDataPlaces::kDb);
  const ValueId db = filter.outputs[FilterGradientPlaces::kDb];
  if (db == kNone) return false;
  Node* relu = ProducerOf(graph, filter.inputs[FilterGradientPlaces::kDy]);
  // A maximum hands on each element of its gradient once, so the sums stay.
  if (IsBackwardOfMaximum(relu)) relu = ProducerOf(graph, relu->inputs[Pool2dBackwardPlaces::kDy]);
  if (relu == nullptr || !IsMasked(*relu) || relu->outputs.size() > 1) return false;
  Node fused = *relu;
  fused.outputs.push_back(db);
  if (!backend.Supports(graph.Spec(fused))) return false;
  graph.SetProducer(db, graph.value(fused.outputs[ReluBackwardPlaces::kDx]).producer);
  *relu = std::move(fused);
  filter.outputs[FilterGradientPlaces::kDb] = kNone;
  return true;
}

// Of FuseGradients(): a slice that nobody reads but batch norms' backward, as their dy. Slices of
// this slice come before it.
bool SliceInBatchNorms(Graph& graph, Node& slice) {
  using Back = BatchNormBackwardPlaces;
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

// Of FuseGradients(): a batch norm's backward that reads y for the ReLU's mask.
bool MaskByBits(Graph& graph, Node& backward, const Backend& backend) {
  using Back = BatchNormBackwardPlaces;
  const ValueId y = backward.inputs[Back::kY];
  if (y == kNone) return false;
  const NodeId forward = graph.value(y).producer;
  const Shape& shape = graph.shape(y);
  if (!CanWriteReluBitmask(std::get<BatchNormAttributes>(backward.attributes), shape)) return false;
  OpSpec leaves = graph.Spec(graph.nodes()[forward]), reads = graph.Spec(backward);
  const TensorSpec bits{.shape = ReluBitmaskShape(shape), .dtype = DType::kU8};
  leaves.outputs.push_back(bits);
  reads.inputs[Back::kReluBitmask] = bits;
  reads.inputs[Back::kY].present = false;
  if (!backend.Supports(leaves) || !backend.Supports(reads)) return false;
  backward.inputs[Back::kReluBitmask] = graph.AddOutput(forward, bits.shape, bits.dtype);
  backward.inputs[Back::kY] = kNone;
  return true;
}

// Of Fuse(): a convolution of an average that nobody else reads. They change places; the value
// between them gets the convolution's channels.
bool AverageLast(Graph& graph, Node& conv, const std::vector<int>& uses) {
  const ValueId between = conv.inputs[Conv2dPlaces::kX], y = conv.outputs[0];
  Node* const pool = ProducerOf(graph, between);
  if (pool == nullptr || pool->kind != OpKind::kPool2d || uses[between] != 1 ||
      std::get<Pool2dAttributes>(pool->attributes).mode != Pool2dAttributes::Mode::kAverage)
    return false;
  const auto& a = std::get<Conv2dAttributes>(conv.attributes);
  const Shape &w = graph.shape(conv.inputs[Conv2dPlaces::kW]), made = graph.shape(y);
  const bool is_linear = !a.relu && conv.inputs[Conv2dPlaces::kBias] == kNone &&
                         conv.inputs[Conv2dPlaces::kResidual] == kNone;
  const bool is_of_pixels = w[2] == 1 && w[3] == 1 && a.stride_h == 1 && a.stride_w == 1 &&
                            a.padding == Padding{} && a.groups == 1;
  const Shape& averaged = graph.shape(between);
  if (!is_linear || !is_of_pixels || made[1] >= averaged[1] ||
      averaged != graph.shape(pool->inputs[0]))
    return false;
  std::swap(conv, *pool);
  Node &first = *pool, &second = conv;
  first.inputs[Conv2dPlaces::kX] = std::exchange(second.inputs[0], between);
  first.outputs[0] = between;
  second.outputs[0] = y;
  graph.SetShape(between, made);
  return true;
}

class Fuser {
 public:
  Fuser(Graph& graph, const Backend& backend)
      : graph_(graph), backend_(backend), uses_(CountUses(graph)) {}

  RewriteCounts Run() {
    for (Node& node : graph_.mutable_nodes()) {
      if (!node.dead && node.kind == OpKind::kConv2d)
        counts_.averages_last += AverageLast(graph_, node, uses_);
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
  // The node that makes `id`, if nobody but one reader looks at the value.
  Node* SoleProducer(ValueId id) { return uses_[id] == 1 ? ProducerOf(graph_, id) : nullptr; }

  // Replaces `producer` and `consumer` by `fused`, which stands where the consumer stood.
  bool Replace(Node& producer, Node& consumer, Node fused) {
    fused.outputs[0] = consumer.outputs[0];
    if (!backend_.Supports(graph_.Spec(fused))) return false;
    const NodeId place = graph_.value(consumer.outputs[0]).producer;
    for (ValueId id : fused.outputs) {
      if (id != kNone) graph_.SetProducer(id, place);
    }
    producer.dead = true;
    consumer = std::move(fused);
    return true;
  }

  // The place for a residual where the node has one that is free: nothing happens behind it yet.
  static std::optional<size_t> FreeResidual(const Node& node) {
    if (node.kind == OpKind::kBatchNorm && node.inputs[BatchNormPlaces::kResidual] == kNone &&
        !std::get<BatchNormAttributes>(node.attributes).relu)
      return BatchNormPlaces::kResidual;
    if (node.kind == OpKind::kConv2d && node.inputs[Conv2dPlaces::kResidual] == kNone &&
        !std::get<Conv2dAttributes>(node.attributes).relu)
      return Conv2dPlaces::kResidual;
    return std::nullopt;
  }

  void FuseAdd(Node& add) {
    if (add.inputs.size() != 2) return;
    // The later producer takes the other one's result as residual, so that the residual exists when
    // it runs.
    NodeId later = kNone;
    for (ValueId id : add.inputs) {
      const Node* producer = SoleProducer(id);
      if (producer != nullptr && FreeResidual(*producer))
        later = std::max(later, graph_.value(id).producer);
    }
    if (later == kNone) return;
    Node& producer = graph_.mutable_nodes()[later];
    Node fused = producer;
    const bool is_first = graph_.value(add.inputs[0]).producer == later;
    fused.inputs[*FreeResidual(producer)] = add.inputs[is_first ? 1 : 0];
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
      return;  // nobody else has one
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
      const ValueId dy = node.inputs[BatchNormBackwardPlaces::kDy];
      if (!was_read[dy]) count += TakeSum(graph, n, uses[dy] == 1);
    }
    for (ValueId id : node.inputs) {
      if (id != kNone) was_read[id] = true;
    }
  }
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes().size()); ++n) {
    const Node& node = graph.nodes()[n];
    if (!node.dead && node.kind == OpKind::kAdd) count += AddWhereMade(graph, n, uses);
  }
  return count;
}

GradientRewriteCounts FuseGradients(Graph& graph, const Backend& backend) {
  GradientRewriteCounts counts;
  const std::vector<int> uses = CountUses(graph);
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == OpKind::kReluBackward)
      counts.masks_before_maxima += MaskBeforeMaximum(graph, node, uses);
  }
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == OpKind::kConv2dBackwardFilter)
      counts.masks_in_filter_gradients += MaskInFilterGradient(graph, node, uses, backend);
  }
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == OpKind::kReluBackward)
      counts.masks_in_convolutions += MaskInConvolution(graph, node, uses, backend);
  }
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead &&
        (node.kind == OpKind::kConv2dBackwardFilter || node.kind == OpKind::kLinearBackwardFilter))
      counts.biases_in_relus += SumBiasInRelu(graph, node, backend);
  }
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    Node& node = graph.mutable_nodes()[i];
    if (!node.dead && node.kind == OpKind::kSlice)
      counts.slices_in_batch_norms += SliceInBatchNorms(graph, node);
  }
  for (Node& node : graph.mutable_nodes()) {
    if (!node.dead && node.kind == OpKind::kBatchNormBackward)
      counts.bits_for_batch_norms += MaskByBits(graph, node, backend);
  }
  return counts;
}

}  // namespace carole
