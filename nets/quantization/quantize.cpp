// The rewriter copies the graph node by node to a new one. A value of the old graph has up to two
// counterparts in the new one: the result itself, and the quantized result. All readers get the
// quantized one.
#include "nets/quantization/quantize.h"

#include <algorithm>
#include <utility>

#include "nets/quantization/placement.h"
#include "src/backend/ops/add.h"
#include "src/backend/ops/hard_activation.h"
#include "src/core/check.h"
#include "src/graph/quantization_names.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

using Range = FakeQuantAttributes::Range;

constexpr auto kConvIn = kPosition<Conv2dInputs>;  // those of linear layers are the same

class Quantizer {
 public:
  Quantizer(const Model& model, const QuantizationOptions& options, bool training)
      : old_model_(model),
        old_(*model.graph),
        options_(options),
        training_(training),
        placement_(PlaceQuantization(old_)),
        graph_(std::make_unique<Graph>(old_.compute())),
        results_(static_cast<size_t>(old_.num_values()), kNone),
        quantized_(results_) {}

  Model Run() {
    CopyLeaves();
    for (NodeId n = 0; n < static_cast<NodeId>(old_.nodes().size()); ++n) Emit(n);
    graph_->SetScope("");
    for (const auto& [name, loss] : old_.losses()) graph_->AddLoss(name, quantized_[loss]);
    AddL2Loss();
    for (const auto& [name, value] : old_.end_points())
      graph_->AddEndPoint(name, quantized_[value]);
    MarkOutputs();
    return {.graph = std::move(graph_),
            .logits = results_[old_model_.logits],
            .aux_logits = old_model_.aux_logits == kNone ? kNone : results_[old_model_.aux_logits],
            .predictions = quantized_[old_model_.predictions]};
  }

 private:
  void Set(ValueId old, ValueId result) { results_[old] = quantized_[old] = result; }

  void CopyLeaves() {
    for (ValueId id = 0; id < old_.num_values(); ++id) {
      const Value& value = old_.value(id);
      if (value.producer != kNone || value.variable != kNone) continue;
      Set(id, graph_->AddInput(value.name, value.shape, value.dtype));
    }
    for (const Variable& variable : old_.variables())
      Set(variable.value, graph_->AddVariable(variable));
    if (!training_ || options_.delay <= 0) return;
    const ValueId number = graph_->AddInput(kQuantizationStep, {}, graph_->compute());
    step_ = ops::Assign(*graph_, number, AddState(kQuantizationStep, 0));
  }

  // Adds a scalar that belongs to quantization.
  ValueId AddState(const std::string& name, double value) {
    return graph_->AddVariable({.name = name,
                                .tf_shape = {},
                                .shape = {},
                                .initializer = Initializer::Constant(value),
                                .trainable = false,
                                .model_variable = false});
  }

  ValueId AddFakeQuant(ValueId x, const std::string& name, Range range, ValueId l2_weight = kNone) {
    const bool starts_at_zero = name.find("/act_quant") != std::string::npos;
    FakeQuantInputs<ValueId> in{.x = x};
    in.min = AddState(name + "/min", starts_at_zero ? 0 : -6);
    in.max = AddState(name + "/max", 6);
    if (training_ && range == Range::kAverage) {
      const std::string state = name + "/" + name;
      in.biased_min = AddState(state + "/min/biased", 0);
      in.min_steps = AddState(state + "/min/local_step", 0);
      in.biased_max = AddState(state + "/max/biased", 0);
      in.max_steps = AddState(state + "/max/local_step", 0);
    }
    in.step = step_;
    in.l2_weight = l2_weight;
    const std::string scope = graph_->scope();
    graph_->SetScope(name);
    const ValueId y = ops::FakeQuant(*graph_, in,
                                     {.range = training_ ? range : Range::kFixed,
                                      .bits = options_.bits,
                                      .narrow = range == Range::kLatest,
                                      .delay = step_ == kNone ? 0 : options_.delay});
    graph_->SetScope(scope);
    return y;
  }

  void Emit(NodeId n) {
    if (placement_.folded_norms.contains(n)) return;  // made together with its layer
    const Node& node = old_.nodes()[n];
    graph_->SetScope(node.name);
    if (placement_.weights.contains(n)) {
      EmitLayer(n);
    } else if (placement_.shifted_relus.contains(n)) {
      EmitHardActivation(n);
    } else if (node.kind == op::kScaledAdd) {
      EmitScaledAdd(node);
    } else if (node.kind == op::kDropout && placement_.IsQuantized(node.inputs[0])) {
      EmitDropout(node);
    } else {
      Copy(node);
    }
    for (const ValueId y : node.outputs) QuantizeIfPlaced(y);
  }

  void Copy(const Node& node) {
    Node copy = node;
    for (ValueId& id : copy.inputs) id = id == kNone ? kNone : quantized_[id];
    Append(std::move(copy), node.outputs);
  }

  void Append(Node copy, const std::vector<ValueId>& outputs) {
    std::vector<Graph::OutputShape> shapes;
    for (const ValueId id : outputs) {
      shapes.push_back(id == kNone ? Graph::OutputShape{{}, graph_->compute(), false}
                                   : Graph::OutputShape{old_.shape(id), old_.value(id).dtype});
    }
    const std::vector<ValueId> made = graph_->AddNode(std::move(copy), shapes).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != kNone) Set(outputs[i], made[i]);
    }
  }

  void QuantizeIfPlaced(ValueId y) {
    const auto place = placement_.values.find(y);
    if (place == placement_.values.end() || results_[y] == kNone) return;
    quantized_[y] = AddFakeQuant(results_[y], place->second, Range::kAverage);
  }

  void EmitLayer(NodeId n) {
    const Node& node = old_.nodes()[n];
    const std::string& name = placement_.weights.at(n);
    const auto folded = placement_.folded.find(n);
    if (folded != placement_.folded.end())
      return EmitFolded(node, old_.nodes()[folded->second], name);
    const ValueId w = results_[node.inputs[kConvIn.w]];
    Variable& variable = graph_->mutable_variables()[graph_->value(w).variable];
    variable.l2_in_graph = training_ && variable.l2_regularized;
    const ValueId quantized = AddFakeQuant(w, name, Range::kLatest, L2WeightOf(w));
    Copy(node);
    graph_->mutable_nodes().back().inputs[kConvIn.w] = quantized;
  }

  void EmitFolded(const Node& layer, const Node& batch_norm, const std::string& name) {
    const auto& a = batch_norm.attributes.as<BatchNormAttributes>();
    const FoldedBatchNormAttributes attributes{
        .epsilon = a.epsilon, .decay = a.decay, .training = training_};
    const auto in = Named<BatchNormInputs>(batch_norm.inputs);
    const auto made = [&](ValueId id) { return id == kNone ? kNone : results_[id]; };
    const ValueId w = results_[layer.inputs[kConvIn.w]];
    FoldedBatchNormInputs<ValueId> norm{.gamma = made(in.gamma),
                                        .beta = made(in.beta),
                                        .moving_mean = made(in.moving_mean),
                                        .moving_variance = made(in.moving_variance)};
    if (training_) {
      Copy(layer);
      norm.z = results_[layer.outputs[0]];
    }
    const auto folded = ops::FoldWeights(
        *graph_, {.w = w, .gamma = norm.gamma, .moving_variance = norm.moving_variance},
        attributes);
    norm.rm = folded.rm;
    const ValueId weights = AddFakeQuant(folded.folded, name, Range::kLatest);
    Node again = layer;
    again.inputs[kConvIn.x] = quantized_[layer.inputs[kConvIn.x]];
    again.inputs[kConvIn.w] = weights;
    Append(std::move(again), layer.outputs);
    norm.c = results_[layer.outputs[0]];
    graph_->SetScope(batch_norm.name);
    Set(batch_norm.outputs[0], ops::FoldedBatchNorm(*graph_, norm, attributes));
    QuantizeIfPlaced(batch_norm.outputs[0]);
  }

  // x * relu6(x + 3) / 6 and relu6(x + 3) * 0.16667, with each intermediate result quantized.
  void EmitHardActivation(NodeId n) {
    const Node& node = old_.nodes()[n];
    const auto& a = node.attributes.as<HardActivationAttributes>();
    const ValueId x = quantized_[node.inputs[0]];
    std::string scope = OperationName(node.name);
    ValueId y = ops::Append(*graph_, op::kHardActivation,
                            HardActivationAttributes{.swish = false, .other_factor = 1}, {x});
    y = AddFakeQuant(y, placement_.shifted_relus.at(n), Range::kAverage);
    std::string last = scope + "/mul";
    if (a.swish) {
      y = AddFakeQuant(ops::Multiply(*graph_, x, y), scope + "/hard_swish/mul/activation_Mul_quant",
                       Range::kAverage);
      last = scope + "/hard_swish/mul_1";
    }
    results_[node.outputs[0]] = ops::Scale(*graph_, y, a.factor());
    quantized_[node.outputs[0]] =
        AddFakeQuant(results_[node.outputs[0]], last + "/activation_Mul_quant", Range::kAverage);
  }

  // a + factor * b: the product is quantized if b was.
  void EmitScaledAdd(const Node& node) {
    const ValueId b = node.inputs[1];
    ValueId product =
        ops::Scale(*graph_, quantized_[b], node.attributes.as<ScaleAttributes>().factor);
    if (placement_.IsQuantized(b))
      product = AddFakeQuant(product, OperationName(node.name) + "/mul/activation_Mul_quant",
                             Range::kAverage);
    Set(node.outputs[0], ops::Add(*graph_, quantized_[node.inputs[0]], product));
  }

  // TensorFlow multiplies by 1/keep and then by the mask, and quantizes both products.
  void EmitDropout(const Node& node) {
    const double keep = node.attributes.as<DropoutAttributes>().keep;
    const std::string scope = OperationName(node.name) + "/dropout";
    ValueId y = ops::Scale(*graph_, quantized_[node.inputs[0]], 1 / keep);
    y = AddFakeQuant(y, scope + "/mul/activation_Mul_quant", Range::kAverage);
    // The operation divides by `keep` too, so its input is multiplied by `keep`.
    y = ops::Dropout(*graph_, ops::Scale(*graph_, y, keep),
                     node.attributes.as<DropoutAttributes>());
    results_[node.outputs[0]] = y;
    quantized_[node.outputs[0]] =
        AddFakeQuant(y, scope + "/mul_1/activation_Mul_quant", Range::kAverage);
  }

  // The graph's input for the regularization of these weights; kNone if they have none here.
  ValueId L2WeightOf(ValueId w) {
    if (!graph_->variables()[graph_->value(w).variable].l2_in_graph) return kNone;
    if (l2_weight_ == kNone) l2_weight_ = graph_->AddInput(kL2Weight, {}, graph_->compute());
    return l2_weight_;
  }

  // Sums the squares of all weights of a layer as a matrix product of them with themselves. The
  // gradient of fake quantization contains the gradient of this loss.
  void AddL2Loss() {
    if (l2_weight_ == kNone) return;
    graph_->SetScope(kL2Loss);
    ValueId sum = kNone;
    for (const ValueId weights : RegularizedWeights()) {
      const ValueId row = ops::Reshape(*graph_, weights, {1, graph_->shape(weights).size()});
      const ValueId squares = ops::Linear(*graph_, row, row, kNone);
      sum = sum == kNone ? squares : ops::Add(*graph_, sum, squares);
    }
    const ValueId half = ops::Reshape(*graph_, ops::Scale(*graph_, sum, 0.5), {1, 1, 1, 1});
    const ValueId weight = ops::Reshape(*graph_, l2_weight_, {1, 1, 1, 1});
    graph_->AddLoss(kL2Loss, ops::Reshape(*graph_, ops::ScaleChannels(*graph_, half, weight), {}));
    graph_->mutable_nodes().back().gradient = nullptr;
  }

  std::vector<ValueId> RegularizedWeights() const {
    std::vector<ValueId> weights;
    for (const Node& node : graph_->nodes()) {
      if (node.kind == op::kFakeQuant && node.inputs[kPosition<FakeQuantInputs>.l2_weight] != kNone)
        weights.push_back(node.outputs[0]);
    }
    return weights;
  }

  void MarkOutputs() {
    for (const ValueId id : old_.outputs()) {
      const bool is_loss =
          std::ranges::any_of(old_.losses(), [id](const auto& loss) { return loss.second == id; });
      const bool is_logits = id == old_model_.logits || id == old_model_.aux_logits;
      if (!is_loss) graph_->MarkOutput(is_logits ? results_[id] : quantized_[id]);
    }
  }

  const Model& old_model_;
  const Graph& old_;
  const QuantizationOptions options_;
  const bool training_;
  const Placement placement_;
  std::unique_ptr<Graph> graph_;
  std::vector<ValueId> results_, quantized_;  // by old value
  ValueId step_ = kNone, l2_weight_ = kNone;  // kNone if the graph has none
};

}  // namespace

Model Quantize(Model model, const QuantizationOptions& options, bool training) {
  return Quantizer(model, options, training).Run();
}

}  // namespace carole::nets
