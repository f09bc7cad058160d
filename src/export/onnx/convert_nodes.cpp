#include "src/export/onnx/convert_nodes.h"

#include <fmt/format.h>

#include "src/backend/ops/add.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/concat.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/lrn.h"
#include "src/backend/ops/pad2d.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/scale_channels.h"
#include "src/backend/ops/softmax.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/export/common/node_order.h"

namespace carole::exporting {
namespace {

std::vector<int64_t> Dims(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

// Only filters of convolutions have another order in ONNX.
const Shape& OnnxShape(const Variable& v) { return v.shape.rank() == 4 ? v.shape : v.tf_shape; }

std::vector<int64_t> Pads(const Padding& p) { return {p.top, p.left, p.bottom, p.right}; }

class NodeConverter {
 public:
  NodeConverter(const ExportedNet& net, const std::string& images,
                const AddOnnxWeights& add_weights, OnnxGraph& out)
      : net_(net), add_weights_(add_weights), out_(out) {
    names_[net.graph.input("images")] = images;
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
      add_weights_(v, Dims(OnnxShape(v)));
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
    std::vector<std::string> inputs{Input(node, in.x), Input(node, in.w)};
    if (const std::string bias = Input(node, in.bias); !bias.empty()) inputs.push_back(bias);
    return Add(node, "Conv", inputs,
               {{"strides", std::vector{a.stride_h, a.stride_w}},
                {"pads", Pads(a.padding)},
                {"dilations", std::vector{a.dilation, a.dilation}},
                {"group", a.groups}});
  }

  std::string ConvertLinear(const Node& node) {
    const auto in = kPosition<LinearInputs>;
    std::vector<std::string> inputs{Input(node, in.x), Input(node, in.w)};
    if (const std::string bias = Input(node, in.bias); !bias.empty()) inputs.push_back(bias);
    return Add(node, "Gemm", inputs);
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
    const std::string gate = Multiply(node, Clip(node, shifted, 6), a.factor());
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
  std::string ConvertScaleChannels(const Node& node) { return Add(node, "Mul", Inputs(node)); }
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
                                    {op::kScaleChannels, &NodeConverter::ConvertScaleChannels},
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
};

}  // namespace

std::map<ValueId, std::string> ConvertNodes(const ExportedNet& net, const std::string& images,
                                            const AddOnnxWeights& add_weights, OnnxGraph& graph) {
  return NodeConverter(net, images, add_weights, graph).Convert();
}

// TensorFlow's filters are (R,S,C,K), those of depthwise convolutions (R,S,C,M) with K = C * M.
// Both have the output channel, as K or as (C,M), in the fastest dimensions; a depthwise filter has
// one input channel there.
std::vector<float> OnnxValues(const ExportedNet& net, const Variable& variable) {
  std::vector<float> values = net.read(variable);
  if (variable.shape.rank() != 4) return values;
  const Shape& s = variable.shape;
  const int64_t outputs = s[0], inputs = s[1], pixels = s[2] * s[3];
  std::vector<float> ordered(values.size());
  const float* from = values.data();
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t c = 0; c < inputs; ++c) {
      for (int64_t k = 0; k < outputs; ++k)
        ordered[static_cast<size_t>((k * inputs + c) * pixels + pixel)] = *from++;
    }
  }
  return ordered;
}

}  // namespace carole::exporting
