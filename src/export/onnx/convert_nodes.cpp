#include "src/export/onnx/convert_nodes.h"

#include <fmt/format.h>

#include "src/backend/ops/add.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/concat.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/lrn.h"
#include "src/backend/ops/multiply.h"
#include "src/backend/ops/pad2d.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/scale_channels.h"
#include "src/backend/ops/softmax.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/export/common/node_order.h"
#include "src/export/onnx/onnx_weights.h"

namespace carole::exporting {
namespace {

std::vector<int64_t> Pads(const Padding& p) { return {p.top, p.left, p.bottom, p.right}; }

class NodeConverter {
 public:
  NodeConverter(const ExportedNet& net, const std::string& images,
                const AddOnnxWeights& add_weights, OnnxGraph& out)
      : net_(net), add_weights_(add_weights), out_(out) {
    names_[net.graph.input("images")] = images;
    for (const Node& node : net.graph.nodes()) {
      if (node.kind == op::kFoldedBatchNorm)
        folded_norms_[node.inputs[kPosition<FoldedBatchNormInputs>.c]] = &node;
    }
  }

  std::map<ValueId, std::string> Convert() && {
    const ValueId results[] = {net_.logits, net_.predictions};
    for (const NodeId id : FindAncestors(net_.graph, results)) {
      const Node& node = net_.graph.nodes()[static_cast<size_t>(id)];
      names_[node.outputs[0]] = ConvertByKind(node);
    }
    return std::move(names_);
  }

 private:
  // The name of input i; "" if it is absent. Adds the weights if it is a variable.
  std::string Input(const Node& node, size_t i = 0) {
    if (i >= node.inputs.size() || node.inputs[i] == kNone) return "";
    const ValueId value = node.inputs[i];
    const int32_t variable = net_.graph.value(value).variable;
    if (variable != kNone && !names_.contains(value)) {
      const Variable& v = net_.graph.variables()[static_cast<size_t>(variable)];
      add_weights_(FloatWeights(net_, v));
      names_[value] = v.name;
    }
    return names_.at(value);
  }

  const Shape& InputShape(const Node& node) const { return net_.graph.shape(node.inputs[0]); }

  std::string Add(const Node& node, const std::string& operation,
                  const std::vector<std::string>& inputs, const OnnxAttributes& attributes = {}) {
    const std::string scope = node.name.empty() ? "" : node.name + "/";
    return out_.Add(operation, scope + operation, inputs, attributes);
  }

  std::string ConvertConv2d(const Node& node) {
    const auto& a = node.attributes.as<Conv2dAttributes>();
    const auto in = kPosition<Conv2dInputs>;
    CAROLE_CHECK(!a.relu && Input(node, in.residual).empty(), "{}: is fused", node.name);
    return Add(node, "Conv", LayerInputs(node),
               {{"strides", std::vector{a.stride_h, a.stride_w}},
                {"pads", Pads(a.padding)},
                {"dilations", std::vector{a.dilation, a.dilation}},
                {"group", a.groups}});
  }

  std::string ConvertLinear(const Node& node) { return Add(node, "Gemm", LayerInputs(node)); }

  // Input, weights, and bias if there is one.
  std::vector<std::string> LayerInputs(const Node& node) {
    constexpr auto in = kPosition<Conv2dInputs>;
    static_assert(in.x == kPosition<LinearInputs>.x && in.w == kPosition<LinearInputs>.w &&
                  in.bias == kPosition<LinearInputs>.bias);
    std::vector<std::string> inputs{Input(node, in.x), Input(node, in.w)};
    if (const std::string bias = Input(node, in.bias); !bias.empty()) inputs.push_back(bias);
    const auto norm = folded_norms_.find(node.outputs[0]);
    if (norm != folded_norms_.end()) {
      const std::vector<float> bias = FoldedBias(net_, *norm->second);
      inputs.push_back(out_.Numbers({std::ssize(bias)}, bias));
    }
    return inputs;
  }

  // The layer reads the folded weights as constants, and the rest of batch norm is its bias.
  std::string ConvertFoldWeights(const Node&) { return ""; }
  std::string ConvertFoldedBatchNorm(const Node& node) {
    return Input(node, kPosition<FoldedBatchNormInputs>.c);
  }

  std::string ConvertFakeQuant(const Node& node) {
    const auto in = kPosition<FakeQuantInputs>;
    const auto& a = node.attributes.as<FakeQuantAttributes>();
    const QuantGrid<float> grid = GridOf(net_, node);
    const std::string scale = out_.Number(grid.is_empty() ? 1 : grid.scale);
    const std::string zero_point =
        out_.Byte(grid.is_empty() ? 0 : static_cast<uint8_t>(grid.zero_point));
    if (AreWeights(net_.graph, node.inputs[in.x])) {
      const OnnxWeights codes = QuantizedWeights(net_, node);
      add_weights_(codes);
      return Add(node, "DequantizeLinear", {codes.name, scale, zero_point});
    }
    std::string x = Input(node, in.x);
    // QuantizeLinear clips to all codes of 8 bits.
    if (a.narrow || grid.is_empty())
      x = Add(node, "Clip",
              {x, out_.Number(grid.is_empty() ? 0 : grid.lo),
               out_.Number(grid.is_empty() ? 0 : grid.hi)});
    const std::string codes = Add(node, "QuantizeLinear", {x, scale, zero_point});
    return Add(node, "DequantizeLinear", {codes, scale, zero_point});
  }

  std::string ConvertBatchNorm(const Node& node) {
    const auto& a = node.attributes.as<BatchNormAttributes>();
    const auto in = kPosition<BatchNormInputs>;
    CAROLE_CHECK(!a.training && !a.relu && Input(node, in.residual).empty(),
                 "{}: is fused or trains", node.name);
    const auto or_constant = [&](const std::string& name, float value) {
      const int64_t count = InputShape(node)[1];
      return !name.empty()
                 ? name
                 : out_.Numbers({count}, std::vector<float>(static_cast<size_t>(count), value));
    };
    return Add(node, "BatchNormalization",
               {Input(node, in.x), or_constant(Input(node, in.gamma), 1),
                or_constant(Input(node, in.beta), 0), Input(node, in.moving_mean),
                Input(node, in.moving_variance)},
               {{"epsilon", static_cast<float>(a.epsilon)}});
  }

  std::string ConvertRelu(const Node& node) {
    const double ceiling = node.attributes.as<ReluAttributes>().ceiling;
    if (ceiling <= 0) return Add(node, "Relu", {Input(node)});
    return Clip(node, Input(node), ceiling);
  }

  std::string Clip(const Node& node, const std::string& x, double ceiling) {
    return Add(node, "Clip", {x, out_.Number(0), out_.Number(static_cast<float>(ceiling))});
  }

  std::string Multiply(const Node& node, const std::string& x, double factor) {
    return Add(node, "Mul", {x, out_.Number(static_cast<float>(factor))});
  }

  std::string ConvertActivation(const Node& node) {
    const auto& a = node.attributes.as<HardActivationAttributes>();
    const std::string shifted = Add(node, "Add", {Input(node), out_.Number(3)});
    std::string gate = Clip(node, shifted, 6);
    if (a.factor() != 1) gate = Multiply(node, gate, a.factor());
    return a.swish ? Add(node, "Mul", {Input(node), gate}) : gate;
  }

  std::vector<std::string> Inputs(const Node& node) {
    std::vector<std::string> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(Input(node, i));
    return inputs;
  }

  std::string ConvertAdd(const Node& node) {
    return Add(node, node.inputs.size() == 2 ? "Add" : "Sum", Inputs(node));
  }
  std::string ConvertConcat(const Node& node) {
    return Add(node, "Concat", Inputs(node), {{"axis", int64_t{1}}});
  }
  std::string ConvertProduct(const Node& node) { return Add(node, "Mul", Inputs(node)); }
  std::string ConvertScale(const Node& node) {
    return Multiply(node, Input(node), node.attributes.as<ScaleAttributes>().factor);
  }
  std::string ConvertScaledAdd(const Node& node) {
    const double factor = node.attributes.as<ScaleAttributes>().factor;
    return Add(node, "Add", {Input(node, 0), Multiply(node, Input(node, 1), factor)});
  }
  std::string ConvertSoftmax(const Node& node) {
    return Add(node, "Softmax", {Input(node)}, {{"axis", int64_t{-1}}});
  }

  std::string ConvertPool2d(const Node& node) {
    const auto& a = node.attributes.as<Pool2dAttributes>();
    const Shape& x = InputShape(node);
    const bool is_max = a.mode == Pool2dAttributes::Mode::kMax;
    if (!is_max && a.padding == Padding{} && a.window_h == x[2] && a.window_w == x[3])
      return Add(node, "GlobalAveragePool", {Input(node)});
    OnnxAttributes attributes{{"kernel_shape", std::vector{a.window_h, a.window_w}},
                              {"strides", std::vector{a.stride_h, a.stride_w}},
                              {"pads", Pads(a.padding)}};
    if (!is_max) attributes.push_back({"count_include_pad", int64_t{0}});
    return Add(node, is_max ? "MaxPool" : "AveragePool", {Input(node)}, attributes);
  }

  std::string ConvertLrn(const Node& node) {
    const auto& a = node.attributes.as<LrnAttributes>();
    const int64_t size = 2 * a.radius + 1;
    return Add(node, "LRN", {Input(node)},
               {{"size", size},
                {"alpha", static_cast<float>(a.alpha * static_cast<double>(size))},
                {"beta", static_cast<float>(a.beta)},
                {"bias", static_cast<float>(a.bias)}});
  }

  std::string ConvertPad2d(const Node& node) {
    const Padding& p = node.attributes.as<Pad2dAttributes>().padding;
    return Add(node, "Pad",
               {Input(node), out_.Integers({0, 0, p.top, p.left, 0, 0, p.bottom, p.right})});
  }

  // The elements keep their order in NHWC.
  std::string ConvertReshape(const Node& node) {
    const Shape &x = InputShape(node), &y = net_.graph.shape(node.outputs[0]);
    std::string result = Input(node);
    const auto is_pixel = [](const Shape& s) { return s.rank() == 2 || s[2] * s[3] == 1; };
    if (!is_pixel(x))
      result = Add(node, "Transpose", {result}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
    // A size of 0 stands for that of the input: the batch.
    if (y.rank() == 2) return Add(node, "Reshape", {result, out_.Integers({0, y[1]})});
    result = Add(node, "Reshape", {result, out_.Integers({0, y[2], y[3], y[1]})});
    return Add(node, "Transpose", {result}, {{"perm", std::vector<int64_t>{0, 3, 1, 2}}});
  }

  std::string ConvertByKind(const Node& node) {
    struct Row {
      OpKind kind;
      std::string (NodeConverter::*convert)(const Node& node);
    };
    static constexpr Row kRows[] = {{op::kConv2d, &NodeConverter::ConvertConv2d},
                                    {op::kLinear, &NodeConverter::ConvertLinear},
                                    {op::kBatchNorm, &NodeConverter::ConvertBatchNorm},
                                    {op::kRelu, &NodeConverter::ConvertRelu},
                                    {op::kHardActivation, &NodeConverter::ConvertActivation},
                                    {op::kAdd, &NodeConverter::ConvertAdd},
                                    {op::kScaledAdd, &NodeConverter::ConvertScaledAdd},
                                    {op::kScale, &NodeConverter::ConvertScale},
                                    {op::kScaleChannels, &NodeConverter::ConvertProduct},
                                    {op::kMultiply, &NodeConverter::ConvertProduct},
                                    {op::kFakeQuant, &NodeConverter::ConvertFakeQuant},
                                    {op::kFoldWeights, &NodeConverter::ConvertFoldWeights},
                                    {op::kFoldedBatchNorm, &NodeConverter::ConvertFoldedBatchNorm},
                                    {op::kConcat, &NodeConverter::ConvertConcat},
                                    {op::kPool2d, &NodeConverter::ConvertPool2d},
                                    {op::kLrn, &NodeConverter::ConvertLrn},
                                    {op::kPad2d, &NodeConverter::ConvertPad2d},
                                    {op::kReshape, &NodeConverter::ConvertReshape},
                                    {op::kSoftmax, &NodeConverter::ConvertSoftmax}};
    for (const Row& row : kRows) {
      if (row.kind == node.kind) return (this->*row.convert)(node);
    }
    throw UsageError(
        fmt::format("[export] {}: the operation {} ({}) has no form in ONNX; choose another {}",
                    net_.name, Name(node.kind), node.name, Option("format")));
  }

  const ExportedNet& net_;
  const AddOnnxWeights& add_weights_;
  OnnxGraph& out_;
  std::map<ValueId, std::string> names_;
  std::map<ValueId, const Node*> folded_norms_;  // by the result of their layer
};

}  // namespace

std::map<ValueId, std::string> ConvertNodes(const ExportedNet& net, const std::string& images,
                                            const AddOnnxWeights& add_weights, OnnxGraph& graph) {
  return NodeConverter(net, images, add_weights, graph).Convert();
}

}  // namespace carole::exporting
