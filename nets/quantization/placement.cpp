#include "nets/quantization/placement.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "src/backend/ops/add.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/scale_channels.h"
#include "src/core/text/unique_names.h"

namespace carole::nets {
namespace {

std::string Parent(const std::string& name) { return name.substr(0, name.rfind('/')); }

class Placer {
 public:
  explicit Placer(const Graph& graph) : graph_(graph) {
    readers_.resize(static_cast<size_t>(graph.num_values()));
    for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes().size()); ++n) {
      for (const ValueId id : node(n).inputs) {
        if (id != kNone) readers_[id].push_back(n);
      }
    }
  }

  Placement Place() {
    std::vector<std::pair<NodeId, ValueId>> layers;
    for (NodeId n = 0; n < num_nodes(); ++n) {
      if (IsLayer(n)) layers.emplace_back(n, ResultOf(n));
    }
    for (const auto& [layer, y] : layers) layer_of_[y] = layer;
    for (const auto& [layer, y] : layers) PlaceLayer(layer, y);
    for (NodeId n = 0; n < num_nodes(); ++n) PlaceOther(n);
    return std::move(placement_);
  }

 private:
  NodeId num_nodes() const { return static_cast<NodeId>(graph_.nodes().size()); }
  const Node& node(NodeId n) const { return graph_.nodes()[n]; }

  // The only reader of a value; kNone if there are none or several.
  NodeId OnlyReader(ValueId id) const {
    const std::vector<NodeId>& readers = readers_[id];
    return readers.size() == 1 ? readers[0] : kNone;
  }
  // A ReLU that reads the value, or kNone.
  NodeId ReluOf(ValueId id) const {
    const auto relu =
        std::ranges::find_if(readers_[id], [&](NodeId n) { return Is(n, op::kRelu); });
    return relu == readers_[id].end() ? kNone : *relu;
  }
  bool Is(NodeId n, OpKind kind) const { return n != kNone && node(n).kind == kind; }

  // Whether this is a layer that TensorFlow's rewriter finds: with a bias, with a batch norm, or
  // the first part of a separable convolution. The two halves of NASNet's factorized reduction are
  // not.
  bool IsLayer(NodeId n) const {
    if (!IsProductWithVariable(n)) return false;
    const NodeId next = OnlyReader(node(n).outputs[0]);
    return HasBias(n) || Is(next, op::kBatchNorm) || IsBeforePointwise(n, next);
  }
  bool IsProductWithVariable(NodeId n) const {
    if (!Is(n, op::kConv2d) && !Is(n, op::kLinear)) return false;
    static_assert(kPosition<Conv2dInputs>.w == kPosition<LinearInputs>.w);
    return graph_.value(node(n).inputs[kPosition<Conv2dInputs>.w]).variable != kNone;
  }
  bool HasBias(NodeId n) const {
    static_assert(kPosition<Conv2dInputs>.bias == kPosition<LinearInputs>.bias);
    return node(n).inputs[kPosition<Conv2dInputs>.bias] != kNone;
  }
  bool IsBeforePointwise(NodeId layer, NodeId next) const {
    return Is(layer, op::kConv2d) && Is(next, op::kConv2d) && IsProductWithVariable(next) &&
           node(next).name == node(layer).name;
  }

  // Returns the result of a layer with its bias or batch norm. Records a batch norm that can be
  // folded.
  ValueId ResultOf(NodeId layer) {
    const ValueId y = node(layer).outputs[0];
    const NodeId next = OnlyReader(y);
    if (!Is(next, op::kBatchNorm) || HasBias(layer)) return y;
    placement_.folded[layer] = next;
    placement_.folded_norms.insert(next);
    return node(next).outputs[0];
  }

  // `y`: the result of the layer with its bias or batch norm.
  void PlaceLayer(NodeId layer, ValueId y) {
    std::string name = OperationName(node(layer).name);
    const NodeId next = OnlyReader(y);
    if (IsBeforePointwise(layer, next)) name += "/separable_conv2d";
    placement_.weights[layer] = names_.Take(name + "/weights_quant");
    if (IsBeforeSplit(y)) {
      Quantize(y, name + "/act_quant");
    } else if (const NodeId relu = ReluOf(y); relu != kNone) {
      Quantize(node(relu).outputs[0], name + "/act_quant");
    } else if (Is(next, op::kHardActivation)) {
      placement_.shifted_relus[next] = names_.Take(Parent(name) + "/act_quant");
      Quantize(y, name + "/conv_quant");
    } else if (IsMainSummand(y, next)) {
      Quantize(node(ReluOf(node(next).outputs[0])).outputs[0], Parent(name) + "/act_quant");
      Quantize(y, name + "/conv_quant");
    } else {
      Quantize(y, name + "/act_quant");
    }
  }

  // Whether y is the result of the first layer of a NASNet cell. TF-Slim splits it into one part.
  // This Split op is between the layer and its ReLUs, so the rewriter does not find them.
  bool IsBeforeSplit(ValueId y) const {
    return node(graph_.value(y).producer).name.ends_with("/beginning_bn");
  }

  // Whether `next` is an add before a ReLU, and y is its first summand that is the result of a
  // layer.
  bool IsMainSummand(ValueId y, NodeId next) const {
    if (!Is(next, op::kAdd) || ReluOf(node(next).outputs[0]) == kNone) return false;
    const std::vector<ValueId>& summands = node(next).inputs;
    return y == (layer_of_.contains(summands[0]) ? summands[0] : summands[1]);
  }

  // Places fake quantization after adds and multiplications. Also updates `reached`, so it must be
  // called for all nodes in their order.
  void PlaceOther(NodeId n) {
    const OpKind kind = node(n).kind;
    const bool is_add = kind == op::kAdd || kind == op::kScaledAdd;
    const bool is_product = kind == op::kScale || kind == op::kScaleChannels;
    const bool keeps = kind == op::kReshape || kind == op::kHardActivation || is_add ||
                       is_product ||
                       (kind == op::kPool2d && node(n).attributes.as<Pool2dAttributes>().mode ==
                                                   Pool2dAttributes::Mode::kMax);
    const ValueId y = node(n).outputs[0];
    const bool reached =
        std::ranges::any_of(node(n).inputs, [&](ValueId x) { return placement_.IsQuantized(x); });
    if (keeps && reached) placement_.reached.insert(y);
    if (!reached || !(is_add || is_product) || Is(OnlyReader(y), op::kRelu)) return;
    const std::string scope = OperationName(node(n).name);
    if (is_product) {
      Quantize(y, scope + "/mul/activation_Mul_quant");
    } else if (kind == op::kAdd && std::ranges::any_of(node(n).inputs, [&](ValueId x) {
                 return IsLinearEndOfBlock(x);
               })) {
      Quantize(y, scope + "/post_activation_bypass_quant");
    } else {
      Quantize(y, scope + "/add/activation_AddV2_quant");
    }
  }

  // True if this is the last layer of a MobileNet block. TF-Slim adds an Identity op after it, and
  // the rewriter treats that op as an activation.
  bool IsLinearEndOfBlock(ValueId id) const {
    const auto layer = layer_of_.find(id);
    return layer != layer_of_.end() && node(layer->second).name.ends_with("/project");
  }

  void Quantize(ValueId id, const std::string& name) {
    if (!placement_.values.contains(id)) placement_.values[id] = names_.Take(name);
  }

  const Graph& graph_;
  Placement placement_;
  std::map<ValueId, NodeId> layer_of_;        // by the result, with bias or batch norm
  std::vector<std::vector<NodeId>> readers_;  // of each value
  UniqueNames names_;
};

}  // namespace

Placement PlaceQuantization(const Graph& graph) { return Placer(graph).Place(); }

std::string OperationName(const std::string& scope) {
  constexpr std::array<std::string_view, 6> kEnteredTwice = {"MobilenetV1", "InceptionV1",
                                                             "InceptionV2", "InceptionV3",
                                                             "InceptionV4", "InceptionResnetV2"};
  constexpr std::array<std::string_view, 3> kHeads = {"Logits", "AuxLogits", "Predictions"};
  const size_t slash = scope.find('/');
  if (slash == std::string::npos) return scope;
  const std::string first = scope.substr(0, slash);
  const std::string second = scope.substr(slash + 1, scope.find('/', slash + 1) - slash - 1);
  if (std::ranges::count(kEnteredTwice, first) == 0 || std::ranges::count(kHeads, second) > 0 ||
      second == first)
    return scope;
  return first + "/" + scope;
}

}  // namespace carole::nets
