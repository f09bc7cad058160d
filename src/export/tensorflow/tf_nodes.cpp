// Converts each node to the operations that TF-Slim uses, with images in the order NHWC. A node of
// the scope S becomes S/Conv2D, S/BiasAdd and so on. A variable X is read by X/read.
//
// The fake quantization P becomes P/FakeQuantWithMinMaxVars. A layer C whose batch norm is folded
// gets the nodes of TensorFlow's rewriter. Converters compute the first two lines, which read only
// variables:
//   C/mul_fold = weights * C/BatchNorm_Fold/mul           mul = gamma / sqrt(variance + epsilon)
//   C/BatchNorm_Fold/bias = beta - mean * C/BatchNorm_Fold/mul
//   C/Conv2D_Fold, C/depthwise_Fold or C/MatMul_Fold      reads mul_fold, quantized
//   C/add_fold = C/Conv2D_Fold + C/BatchNorm_Fold/bias
#include "src/export/tensorflow/tf_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "src/backend/ops/add.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/concat.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/dropout.h"
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
#include "src/export/common/quantized_layers.h"
#include "src/export/common/window_padding.h"

namespace carole::exporting {
namespace {

using Attributes = TfGraph::Attributes;

const std::pair<std::string, TfAttribute> kFloat{"T", TfType::kFloat};

class NodeConverter {
 public:
  NodeConverter(const ExportedNet& net, const std::string& images, bool freeze,
                const OutputNames& outputs, TfGraph& out)
      : net_(net), freeze_(freeze), folded_layers_(FindFoldedLayers(net.graph)), out_(out) {
    tensors_[net.graph.input("images")] = images;
    wanted_[net.logits] = outputs.logits;
    wanted_[net.predictions] = outputs.predictions;
    for (const auto& [value, name] : wanted_) out_.Reserve(name);
  }

  void Convert() {
    const ValueId results[] = {net_.logits, net_.predictions};
    for (const NodeId id : FindAncestors(net_.graph, results)) {
      const Node& node = net_.graph.nodes()[static_cast<size_t>(id)];
      tensors_[node.outputs[0]] = ConvertByKind(node);
    }
  }

 private:
  const Variable* VariableOf(ValueId value) const {
    const int32_t variable = net_.graph.value(value).variable;
    return variable == kNone ? nullptr : &net_.graph.variables()[static_cast<size_t>(variable)];
  }

  // The name of input i; "" if it is absent. Adds the variable if it is one.
  std::string Input(const Node& node, size_t i = 0) {
    if (i >= node.inputs.size() || node.inputs[i] == kNone) return "";
    const ValueId value = node.inputs[i];
    const Variable* v = VariableOf(value);
    if (v != nullptr && !tensors_.contains(value)) tensors_[value] = AddVariable(*v);
    return tensors_.at(value);
  }

  std::string AddVariable(const Variable& v) {
    const std::vector<int64_t> dims(v.tf_shape.dims().begin(), v.tf_shape.dims().end());
    const std::string name =
        freeze_
            ? out_.AddWeights(v.name, dims,
                              [&net = net_, &v](Sink& sink) { sink.Append(BytesOf(net.read(v))); })
            : out_.Add("VariableV2", v.name, {},
                       {{"dtype", TfType::kFloat},
                        {"shape", TfShape{dims}},
                        {"container", std::string()},
                        {"shared_name", std::string()}});
    CAROLE_CHECK_EQ(name, v.name, "name of a variable");
    return out_.Add("Identity", v.name + "/read", {name}, {kFloat});
  }

  const Shape& InputShape(const Node& node) const { return net_.graph.shape(node.inputs[0]); }

  std::string Path(const Node& node, const std::string& leaf) const {
    if (node.name.empty()) return leaf;
    return (net_.operation_name ? net_.operation_name(node.name) : node.name) + "/" + leaf;
  }

  std::string Add(const Node& node, const std::string& operation, std::vector<std::string> inputs,
                  Attributes attributes = {kFloat}) {
    return out_.Add(operation, Path(node, operation), std::move(inputs), std::move(attributes));
  }

  // Adds the node of the result, which may have a name of its own.
  std::string AddResult(const Node& node, const std::string& operation,
                        std::vector<std::string> inputs, Attributes attributes = {kFloat}) {
    return AddResult(node, Path(node, operation), operation, std::move(inputs),
                     std::move(attributes));
  }
  std::string AddResult(const Node& node, const std::string& name, const std::string& operation,
                        std::vector<std::string> inputs, Attributes attributes) {
    const auto wanted = wanted_.find(node.outputs[0]);
    if (wanted == wanted_.end())
      return out_.Add(operation, name, std::move(inputs), std::move(attributes));
    return out_.AddNamed(operation, wanted->second, std::move(inputs), std::move(attributes));
  }

  std::string Integers(const Node& node, const std::string& leaf,
                       const std::vector<int32_t>& values, std::vector<int64_t> dims = {}) {
    return out_.AddIntegers(Path(node, leaf), values, std::move(dims));
  }
  std::string Number(const Node& node, double value) {
    return out_.AddNumber(Path(node, "Const"), static_cast<float>(value));
  }

  static std::vector<int32_t> Amounts(const Padding& p) {
    const auto n = [](int64_t value) { return static_cast<int32_t>(value); };
    return {0, 0, n(p.top), n(p.bottom), n(p.left), n(p.right), 0, 0};
  }

  std::string Pad(const Node& node, const std::string& x, const Padding& p) {
    return Add(node, "Pad", {x, Integers(node, "paddings", Amounts(p), {4, 2})},
               {kFloat, {"Tpaddings", TfType::kInt32}});
  }

  // A maximum must not see the padding, so it is the smallest number there.
  std::string PadWithLowest(const Node& node, const std::string& x, const Padding& p) {
    return Add(node, "PadV2",
               {x, Integers(node, "paddings", Amounts(p), {4, 2}),
                Number(node, std::numeric_limits<float>::lowest())},
               {kFloat, {"Tpaddings", TfType::kInt32}});
  }

  [[noreturn]] void Refuse(const Node& node, const std::string& what) const {
    throw UsageError(
        fmt::format("[export] {}: {} ({}) has no form in TensorFlow; choose another {}", net_.name,
                    what, node.name, Option("format")));
  }

  // Returns the operation's padding. If it has no name there, adds it to `x`.
  std::string NamePadding(const Node& node, const Conv2dAttributes& a, Extent window,
                          std::string& x) {
    const Shape& image = InputShape(node);
    switch (NameOf(a.padding, {image[2], image[3]}, window, {a.stride_h, a.stride_w})) {
      case NamedPadding::kValid:
        return "VALID";
      case NamedPadding::kSame:
        return "SAME";
      case NamedPadding::kOther:
        x = Pad(node, x, a.padding);
    }
    return "VALID";
  }

  std::string ConvertConv2d(const Node& node) {
    const auto& a = node.attributes.as<Conv2dAttributes>();
    const auto in = kPosition<Conv2dInputs>;
    CAROLE_CHECK(!a.relu && Input(node, in.residual).empty(), "{}: is fused", node.name);
    const Shape& weights = net_.graph.shape(node.inputs[static_cast<size_t>(in.w)]);
    const auto effective = [&](int64_t size) { return (size - 1) * a.dilation + 1; };
    const bool is_depthwise = a.groups > 1;
    if (is_depthwise && (a.groups != InputShape(node)[1] || a.stride_h != a.stride_w))
      Refuse(node, "a convolution in groups");
    std::string x = Input(node, in.x);
    const std::string padding =
        NamePadding(node, a, {effective(weights[2]), effective(weights[3])}, x);
    const Attributes attributes{kFloat,
                                {"strides", std::vector<int64_t>{1, a.stride_h, a.stride_w, 1}},
                                {"dilations", std::vector<int64_t>{1, a.dilation, a.dilation, 1}},
                                {"padding", padding},
                                {"data_format", std::string("NHWC")}};
    const std::string filter = Input(node, in.w);
    return WithBias(node, is_depthwise ? "DepthwiseConv2dNative" : "Conv2D", {x, filter},
                    attributes, Input(node, in.bias));
  }

  std::string WithBias(const Node& node, const std::string& operation,
                       std::vector<std::string> inputs, const Attributes& attributes,
                       const std::string& bias) {
    const auto folded = folded_layers_.find(node.outputs[0]);
    if (folded != folded_layers_.end())
      return out_.Add(operation, folded->second + FoldedLeaf(node, operation), std::move(inputs),
                      attributes);
    const std::string name = Path(node, LayerLeaf(node, operation));
    if (bias.empty()) return AddResult(node, name, operation, std::move(inputs), attributes);
    return AddResult(node, "BiasAdd",
                     {out_.Add(operation, name, std::move(inputs), attributes), bias});
  }

  std::string ConvertLinear(const Node& node) {
    const auto in = kPosition<LinearInputs>;
    return WithBias(node, "MatMul", {Input(node, in.x), Input(node, in.w)}, {kFloat},
                    Input(node, in.bias));
  }

  std::string ConvertBatchNorm(const Node& node) {
    const auto& a = node.attributes.as<BatchNormAttributes>();
    const auto in = kPosition<BatchNormInputs>;
    if (InputShape(node).rank() != 4) Refuse(node, "batch norm of a matrix");
    const int64_t channels = InputShape(node)[1];
    const std::string empty = a.training ? out_.AddNumbers(Path(node, "Const"), {}) : "";
    return AddResult(
        node, "FusedBatchNormV3",
        {Input(node, in.x), InputOr(node, in.gamma, 1, channels),
         InputOr(node, in.beta, 0, channels), a.training ? empty : Input(node, in.moving_mean),
         a.training ? empty : Input(node, in.moving_variance)},
        {kFloat,
         {"U", TfType::kFloat},
         {"epsilon", static_cast<float>(a.epsilon)},
         {"is_training", a.training},
         {"data_format", std::string("NHWC")}});
  }

  // The name of input i, or of a constant vector if it is absent.
  std::string InputOr(const Node& node, size_t i, float value, int64_t count) {
    std::string name = Input(node, i);
    if (!name.empty()) return name;
    const std::vector<float> values(static_cast<size_t>(count), value);
    return out_.AddNumbers(Path(node, "Const"), values);
  }

  std::string ConvertFakeQuant(const Node& node) {
    const auto& a = node.attributes.as<FakeQuantAttributes>();
    const auto in = kPosition<FakeQuantInputs>;
    return AddResult(node, "FakeQuantWithMinMaxVars",
                     {Input(node, in.x), Input(node, in.min), Input(node, in.max)},
                     {{"num_bits", int64_t{a.bits}}, {"narrow_range", a.narrow}});
  }

  std::string ConvertFoldWeights(const Node& node) {
    const auto in = kPosition<FoldWeightsInputs>;
    const auto out = kPosition<FoldWeightsOutputs>;
    const std::string& layer = folded_layers_.at(node.outputs[out.folded]);
    const std::string norm = layer + "/BatchNorm_Fold/";
    const double epsilon = node.attributes.as<FoldedBatchNormAttributes>().epsilon;
    const int64_t channels = net_.graph.shape(node.outputs[out.rm])[0];
    const std::string variance =
        out_.Add("AddV2", norm + "add",
                 {Input(node, in.moving_variance),
                  out_.AddNumber(norm + "add/y", static_cast<float>(epsilon))},
                 {kFloat});
    std::string factors = out_.Add("Mul", norm + "mul",
                                   {InputOr(node, in.gamma, 1, channels),
                                    out_.Add("Rsqrt", norm + "Rsqrt", {variance}, {kFloat})},
                                   {kFloat});
    tensors_[node.outputs[out.rm]] = factors;
    const Shape& filter = VariableOf(node.inputs[in.w])->tf_shape;
    if (filter.rank() == 4 && filter[3] != channels) {  // depthwise: (R,S,C,M) with C * M channels
      const std::vector<int32_t> sizes{static_cast<int32_t>(filter[2]),
                                       static_cast<int32_t>(filter[3])};
      factors = out_.Add("Reshape", norm + "scale_reshape",
                         {factors, out_.AddIntegers(norm + "scale_reshape/shape", sizes)},
                         {kFloat, {"Tshape", TfType::kInt32}});
    }
    return out_.Add("Mul", layer + "/mul_fold", {Input(node, in.w), factors}, {kFloat});
  }

  // The input rm is C/BatchNorm_Fold/mul, which has the factor gamma already.
  std::string ConvertFoldedBatchNorm(const Node& node) {
    const auto in = kPosition<FoldedBatchNormInputs>;
    CAROLE_CHECK(!node.attributes.as<FoldedBatchNormAttributes>().training, "{}: trains",
                 node.name);
    const std::string& layer = folded_layers_.at(node.inputs[in.c]);
    const std::string norm = layer + "/BatchNorm_Fold/";
    const std::string beta = InputOr(node, in.beta, 0, InputShape(node)[1]);
    const std::string mean = out_.Add("Mul", norm + "mul_1",
                                      {Input(node, in.moving_mean), Input(node, in.rm)}, {kFloat});
    const std::string bias = out_.Add("Sub", norm + "bias", {beta, mean}, {kFloat});
    return AddResult(node, layer + "/add_fold", "AddV2", {Input(node, in.c), bias}, {kFloat});
  }

  std::string ConvertRelu(const Node& node) {
    const double ceiling = node.attributes.as<ReluAttributes>().ceiling;
    if (ceiling == 6) return AddResult(node, "Relu6", {Input(node)});
    if (ceiling <= 0) return AddResult(node, "Relu", {Input(node)});
    return AddResult(node, "Minimum", {Add(node, "Relu", {Input(node)}), Number(node, ceiling)});
  }

  std::string ConvertActivation(const Node& node) {
    const auto& a = node.attributes.as<HardActivationAttributes>();
    const std::string shifted = Add(node, "AddV2", {Input(node), Number(node, 3)});
    if (!a.swish && a.factor() == 1) return AddResult(node, "Relu6", {shifted});
    const std::string gate = Add(node, "Relu6", {shifted});
    const std::string factor = Number(node, a.factor());
    if (!a.swish) return AddResult(node, "Mul", {gate, factor});
    return AddResult(node, "Mul", {Input(node), Add(node, "Mul", {gate, factor})});
  }

  std::vector<std::string> Inputs(const Node& node) {
    std::vector<std::string> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(Input(node, i));
    return inputs;
  }

  std::string ConvertAdd(const Node& node) {
    if (node.inputs.size() == 2) return AddResult(node, "AddV2", Inputs(node));
    return AddResult(node, "AddN", Inputs(node), {kFloat, {"N", std::ssize(node.inputs)}});
  }
  std::string ConvertScaledAdd(const Node& node) {
    const std::string factor = Number(node, node.attributes.as<ScaleAttributes>().factor);
    return AddResult(node, "AddV2", {Input(node, 0), Add(node, "Mul", {Input(node, 1), factor})});
  }
  std::string ConvertScale(const Node& node) {
    const std::string factor = Number(node, node.attributes.as<ScaleAttributes>().factor);
    return AddResult(node, "Mul", {Input(node), factor});
  }
  std::string ConvertProduct(const Node& node) { return AddResult(node, "Mul", Inputs(node)); }
  std::string ConvertConcat(const Node& node) {
    std::vector<std::string> inputs = Inputs(node);
    const int64_t count = std::ssize(inputs);
    inputs.push_back(out_.AddInteger(Path(node, "axis"), 3));
    return AddResult(node, "ConcatV2", std::move(inputs),
                     {kFloat, {"N", count}, {"Tidx", TfType::kInt32}});
  }

  std::string ConvertPool2d(const Node& node) {
    const auto& a = node.attributes.as<Pool2dAttributes>();
    const Shape& image = InputShape(node);
    const bool is_max = a.mode == Pool2dAttributes::Mode::kMax;
    std::string x = Input(node), padding = "VALID";
    switch (NameOf(a.padding, {image[2], image[3]}, {a.window_h, a.window_w},
                   {a.stride_h, a.stride_w})) {
      case NamedPadding::kValid:
        break;
      case NamedPadding::kSame:
        padding = "SAME";
        break;
      case NamedPadding::kOther:
        if (!is_max) Refuse(node, "an average with this padding");
        x = PadWithLowest(node, x, a.padding);
    }
    return AddResult(node, is_max ? "MaxPool" : "AvgPool", {x},
                     {kFloat,
                      {"ksize", std::vector<int64_t>{1, a.window_h, a.window_w, 1}},
                      {"strides", std::vector<int64_t>{1, a.stride_h, a.stride_w, 1}},
                      {"padding", padding},
                      {"data_format", std::string("NHWC")}});
  }

  std::string ConvertLrn(const Node& node) {
    const auto& a = node.attributes.as<LrnAttributes>();
    return AddResult(node, "LRN", {Input(node)},
                     {kFloat,
                      {"depth_radius", a.radius},
                      {"bias", static_cast<float>(a.bias)},
                      {"alpha", static_cast<float>(a.alpha)},
                      {"beta", static_cast<float>(a.beta)}});
  }

  std::string ConvertPad2d(const Node& node) {
    const Padding& p = node.attributes.as<Pad2dAttributes>().padding;
    const auto positive = [](int64_t n) { return std::max<int64_t>(n, 0); };
    const Padding added{positive(p.top), positive(p.left), positive(p.bottom), positive(p.right)};
    std::string x = Input(node);
    if (added != Padding{}) x = Pad(node, x, added);
    if (added == p) return x;
    const Shape& y = net_.graph.shape(node.outputs[0]);
    const auto n = [](int64_t value) { return static_cast<int32_t>(value); };
    return AddResult(
        node, "Slice",
        {x, Integers(node, "begin", {0, n(added.top - p.top), n(added.left - p.left), 0}),
         Integers(node, "size", {-1, n(y[2]), n(y[3]), -1})},
        {kFloat, {"Index", TfType::kInt32}});
  }

  std::string Reshape(const Node& node, const std::string& x, const std::vector<int64_t>& dims,
                      bool is_result) {
    const std::vector<int32_t> sizes(dims.begin(), dims.end());
    const std::string shape = Integers(node, "shape", sizes);
    const Attributes attributes{kFloat, {"Tshape", TfType::kInt32}};
    return is_result ? AddResult(node, "Reshape", {x, shape}, attributes)
                     : Add(node, "Reshape", {x, shape}, attributes);
  }

  std::string ConvertReshape(const Node& node) {
    const Shape &x = InputShape(node), &y = net_.graph.shape(node.outputs[0]);
    if (y.rank() == 4) return Reshape(node, Input(node), {-1, y[2], y[3], y[1]}, true);
    if (x.rank() == 4 && x[2] == 1 && x[3] == 1)
      return AddResult(node, "Squeeze", {Input(node)},
                       {kFloat, {"squeeze_dims", std::vector<int64_t>{1, 2}}});
    return Reshape(node, Input(node), {-1, y[1]}, true);
  }

  // TF-Slim's softmax reshapes its input and its result.
  std::string ConvertSoftmax(const Node& node) {
    const auto wanted = wanted_.find(node.outputs[0]);
    const bool reshapes = wanted != wanted_.end() && wanted->second.ends_with("/Reshape_1");
    if (!reshapes) return AddResult(node, "Softmax", {Input(node)});
    const std::vector<int64_t> dims{-1, InputShape(node)[1]};
    const std::string flat = Reshape(node, Input(node), dims, false);
    return Reshape(node, Add(node, "Softmax", {flat}), dims, true);
  }

  // x / keep where a random number of [keep, 1 + keep) has the whole part 1.
  std::string ConvertDropout(const Node& node) {
    const double keep = node.attributes.as<DropoutAttributes>().keep;
    if (node.attributes.as<DropoutAttributes>().per_row) Refuse(node, "dropout of whole rows");
    const std::string shape =
        Add(node, "Shape", {Input(node)}, {kFloat, {"out_type", TfType::kInt32}});
    const std::string random =
        Add(node, "RandomUniform", {shape}, {{"T", TfType::kInt32}, {"dtype", TfType::kFloat}});
    const std::string mask = Add(node, "Floor", {Add(node, "AddV2", {random, Number(node, keep)})});
    const std::string scaled = Add(node, "Mul", {Input(node), Number(node, 1 / keep)});
    return AddResult(node, "Mul", {scaled, mask});
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
                                    {op::kSoftmax, &NodeConverter::ConvertSoftmax},
                                    {op::kDropout, &NodeConverter::ConvertDropout}};
    for (const Row& row : kRows) {
      if (row.kind == node.kind) return (this->*row.convert)(node);
    }
    Refuse(node, fmt::format("the operation {}", Name(node.kind)));
  }

  // The last part of the name of a layer's operation.
  std::string LayerLeaf(const Node& node, const std::string& operation) const {
    if (IsPointwise(net_.graph, node)) return "separable_conv2d";
    if (operation != "DepthwiseConv2dNative") return operation;
    const bool is_before_pointwise =
        std::ranges::any_of(net_.graph.nodes(), [&](const Node& other) {
          return other.name == node.name && IsPointwise(net_.graph, other);
        });
    return is_before_pointwise ? "separable_conv2d/depthwise" : "depthwise";
  }
  // The same for a layer whose batch norm is folded.
  std::string FoldedLeaf(const Node& node, const std::string& operation) const {
    if (operation == "DepthwiseConv2dNative") return "/depthwise_Fold";
    return IsPointwise(net_.graph, node) ? "/separable_conv2d_Fold" : "/" + operation + "_Fold";
  }

  const ExportedNet& net_;
  const bool freeze_;
  const std::map<ValueId, std::string> folded_layers_;
  TfGraph& out_;
  std::map<ValueId, std::string> tensors_;
  std::map<ValueId, std::string> wanted_;  // names of results
};

}  // namespace

void AddNetNodes(const ExportedNet& net, const std::string& images, bool freeze,
                 const OutputNames& outputs, TfGraph& graph) {
  NodeConverter(net, images, freeze, outputs, graph).Convert();
}

}  // namespace carole::exporting
