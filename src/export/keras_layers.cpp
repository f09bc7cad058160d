#include "src/export/keras_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "io/checkpoint/keras_layout.h"
#include "src/backend/ops/add.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/concat.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/dropout.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/normalize.h"
#include "src/backend/ops/pad2d.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/scale_channels.h"
#include "src/core/check.h"
#include "src/export/common/node_order.h"
#include "src/export/common/window_padding.h"

namespace carole::train {
namespace {

using Json = nlohmann::ordered_json;

// Keras's names of paddings; "" for one that has no name.
std::string PaddingName(const Padding& padding, exporting::Extent image, exporting::Extent window,
                        exporting::Extent stride) {
  switch (exporting::NameOf(padding, image, window, stride)) {
    case exporting::NamedPadding::kValid:
      return "valid";
    case exporting::NamedPadding::kSame:
      return "same";
    case exporting::NamedPadding::kOther:
      return "";
  }
  return "";
}

// Converts the nodes of a graph, in their order, to layers.
class Converter {
 public:
  explicit Converter(const Graph& graph) : graph_(graph) {}

  std::vector<KerasNode> Convert(ValueId value) && {
    const ValueId images = graph_.input("images");
    const Shape& in = graph_.shape(images);
    layer_of_[images] =
        Append("InputLayer", "images", {}, {{"batch_input_shape", {nullptr, in[2], in[3], in[1]}}});
    for (NodeId id : exporting::FindAncestors(graph_, {&value, 1}))
      ConvertNode(graph_.nodes()[static_cast<size_t>(id)]);
    const int logits = layer_of_.at(value);
    Append("Softmax", "predictions", {logits}, {{"axis", -1}});
    return std::move(layers_);
  }

 private:
  // Appends a layer and returns its index. Makes the name unique if the layer has no weights.
  int Append(const std::string& class_name, const std::string& scope, std::vector<int> inputs,
             const Json& config, bool has_weights = false) {
    std::string name = io::KerasLayerName(scope);
    for (int i = 1; !names_.insert(name).second; ++i) {
      CAROLE_CHECK(!has_weights, "two layers with weights are called {}", scope);
      name = fmt::format("{}_{}", io::KerasLayerName(scope), i);
    }
    Json full{{"name", name}, {"dtype", "float32"}};
    full.update(config);
    layers_.push_back({class_name, name, std::move(full), std::move(inputs), has_weights});
    return static_cast<int>(layers_.size()) - 1;
  }

  int Input(const Node& node, size_t i = 0) const { return layer_of_.at(node.inputs[i]); }

  // The variable at input i; null if the node does not have that input.
  const Variable* VariableAt(const Node& node, size_t i) const {
    if (i >= node.inputs.size() || node.inputs[i] == kNone) return nullptr;
    return &graph_.variables()[static_cast<size_t>(graph_.value(node.inputs[i]).variable)];
  }

  // The scope of a layer without weights: NODE/WHAT, or NODE if its name ends in WHAT.
  static std::string Scope(const Node& node, const char* what) {
    if (io::LeafOf(node.name) == what) return node.name;
    return node.name.empty() ? what : fmt::format("{}/{}", node.name, what);
  }

  int Pad(const Node& node, int input, const Padding& p) {
    return Append(
        "ZeroPadding2D", Scope(node, "pad"), {input},
        {{"padding", {{p.top, p.bottom}, {p.left, p.right}}}, {"data_format", "channels_last"}});
  }

  int Rescale(const Node& node, int input, double scale, double offset) {
    return Append("Rescaling", Scope(node, "rescale"), {input},
                  {{"scale", scale}, {"offset", offset}});
  }

  // Hard sigmoid, relu6(x + 3) * factor; hard swish multiplies that by x.
  int ConvertActivation(const Node& node) {
    const auto& attributes = node.attributes.as<HardActivationAttributes>();
    int y = Rescale(node, Input(node), 1, 3);
    y = Append("ReLU", Scope(node, "relu"), {y}, {{"max_value", 6.0}});
    y = Rescale(node, y, attributes.factor(), 0);
    if (!attributes.swish) return y;
    return Append("Multiply", Scope(node, "multiply"), {Input(node), y}, Json::object());
  }

  // The configuration of a convolution. If Keras has no name for the padding, appends a
  // ZeroPadding2D layer and sets `input` to it.
  Json WindowConfig(const Node& node, const Variable& weights, int& input) {
    const auto& a = node.attributes.as<Conv2dAttributes>();
    const Shape& x = graph_.shape(node.inputs[0]);
    const auto effective = [&](int64_t size) { return (size - 1) * a.dilation + 1; };
    const exporting::Extent window{weights.tf_shape[0], weights.tf_shape[1]};
    std::string padding =
        PaddingName(a.padding, {x[2], x[3]}, {effective(window.h), effective(window.w)},
                    {a.stride_h, a.stride_w});
    if (padding.empty()) {
      input = Pad(node, input, a.padding);
      padding = "valid";
    }
    return {{"kernel_size", {window.h, window.w}},
            {"strides", {a.stride_h, a.stride_w}},
            {"padding", padding},
            {"dilation_rate", {a.dilation, a.dilation}},
            {"activation", "linear"},
            {"data_format", "channels_last"}};
  }

  int ConvertConv2d(const Node& node) {
    const Variable& weights = *VariableAt(node, 1);
    const std::string scope(io::ScopeOf(weights.name));
    const std::string_view leaf = io::LeafOf(weights.name);
    int input = Input(node);
    Json config = WindowConfig(node, weights, input);
    config["use_bias"] = VariableAt(node, 2) != nullptr;
    if (leaf == "pointwise_weights") return ConvertPointwise(node, scope, std::move(config));
    if (leaf == "depthwise_weights") {
      config["depth_multiplier"] = weights.tf_shape[3];
      if (HasPointwise(scope)) {
        depthwise_[scope] = {.config = std::move(config), .inputs = {input}};
        return input;  // not used: the pointwise half follows
      }
      return Append("DepthwiseConv2D", scope, {input}, config, true);
    }
    config["filters"] = weights.tf_shape[3];
    config["groups"] = node.attributes.as<Conv2dAttributes>().groups;
    return Append("Conv2D", scope, {input}, config, true);
  }

  bool HasPointwise(const std::string& scope) const {
    return std::ranges::any_of(graph_.variables(), [&](const Variable& v) {
      return v.name == scope + "/pointwise_weights";
    });
  }

  // The two halves of a separable convolution become one layer.
  int ConvertPointwise(const Node& node, const std::string& scope, Json config) {
    const KerasNode& depthwise = depthwise_.at(scope);
    const Json use_bias = config["use_bias"];
    config = depthwise.config;
    config["use_bias"] = use_bias;
    config["filters"] = VariableAt(node, 1)->tf_shape[3];
    return Append("SeparableConv2D", scope, depthwise.inputs, config, true);
  }

  int ConvertBatchNorm(const Node& node) {
    const auto& a = node.attributes.as<BatchNormAttributes>();
    const Variable& mean = *VariableAt(node, kPosition<BatchNormInputs>.moving_mean);
    return Append("BatchNormalization", std::string(io::ScopeOf(mean.name)), {Input(node)},
                  {{"axis", -1},
                   {"momentum", a.decay},
                   {"epsilon", a.epsilon},
                   {"scale", VariableAt(node, kPosition<BatchNormInputs>.gamma) != nullptr},
                   {"center", VariableAt(node, kPosition<BatchNormInputs>.beta) != nullptr}},
                  true);
  }

  int ConvertLinear(const Node& node) {
    const Variable& weights = *VariableAt(node, 1);
    return Append("Dense", std::string(io::ScopeOf(weights.name)), {Input(node)},
                  {{"units", weights.tf_shape[1]},
                   {"use_bias", VariableAt(node, 2) != nullptr},
                   {"activation", "linear"}},
                  true);
  }

  // Whether a value is the result of a ReLU.
  bool IsRelu(ValueId value) const {
    const NodeId producer = graph_.value(value).producer;
    return producer != kNone &&
           graph_.nodes()[static_cast<size_t>(producer)].kind == OpKind(op::kRelu);
  }

  int ConvertPool2d(const Node& node) {
    const auto& a = node.attributes.as<Pool2dAttributes>();
    const Shape& x = graph_.shape(node.inputs[0]);
    std::string padding =
        PaddingName(a.padding, {x[2], x[3]}, {a.window_h, a.window_w}, {a.stride_h, a.stride_w});
    const bool is_max = a.mode == Pool2dAttributes::Mode::kMax;
    int input = Input(node);
    if (padding.empty()) {
      // Keras pads with zeros, which a maximum ignores only if no pixel is below 0.
      if (!is_max || !IsRelu(node.inputs[0])) throw NoKerasLayer{Scope(node, "pool")};
      input = Pad(node, input, a.padding);
      padding = "valid";
    }
    return Append(is_max ? "MaxPooling2D" : "AveragePooling2D", Scope(node, "pool"), {input},
                  {{"pool_size", {a.window_h, a.window_w}},
                   {"strides", {a.stride_h, a.stride_w}},
                   {"padding", padding},
                   {"data_format", "channels_last"}});
  }

  int ConvertPad2d(const Node& node) {
    const Padding& p = node.attributes.as<Pad2dAttributes>().padding;
    const Padding added{std::max<int64_t>(p.top, 0), std::max<int64_t>(p.left, 0),
                        std::max<int64_t>(p.bottom, 0), std::max<int64_t>(p.right, 0)};
    const Padding cut{added.top - p.top, added.left - p.left, added.bottom - p.bottom,
                      added.right - p.right};
    int y = Input(node);
    if (added != Padding{}) y = Pad(node, y, added);
    if (cut == Padding{}) return y;
    return Append("Cropping2D", Scope(node, "crop"), {y},
                  {{"cropping", {{cut.top, cut.bottom}, {cut.left, cut.right}}},
                   {"data_format", "channels_last"}});
  }

  int ConvertReshape(const Node& node) {
    const Shape& y = graph_.shape(node.outputs[0]);
    if (y.rank() == 2)
      return Append("Flatten", Scope(node, "flatten"), {Input(node)},
                    {{"data_format", "channels_last"}});
    return Append("Reshape", Scope(node, "reshape"), {Input(node)},
                  {{"target_shape", {y[2], y[3], y[1]}}});
  }

  int ConvertDropout(const Node& node) {
    const auto& a = node.attributes.as<DropoutAttributes>();
    Json config{{"rate", std::round((1 - a.keep) * 1e12) / 1e12}};  // 0.2, not 0.1999…
    if (a.per_row) config["noise_shape"] = {nullptr, 1, 1, 1};
    return Append("Dropout", Scope(node, "dropout"), {Input(node)}, config);
  }

  int ConvertRelu(const Node& node) {
    const double ceiling = node.attributes.as<ReluAttributes>().ceiling;
    Json config = Json::object();
    if (ceiling > 0) config["max_value"] = ceiling;
    return Append("ReLU", Scope(node, "relu"), {Input(node)}, config);
  }

  int ConvertMerge(const Node& node, const char* class_name, const Json& config) {
    std::vector<int> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(Input(node, i));
    return Append(class_name, Scope(node, class_name), std::move(inputs), config);
  }

  int ConvertScaledAdd(const Node& node) {
    const double factor = node.attributes.as<ScaleAttributes>().factor;
    const int scaled = Rescale(node, Input(node, 1), factor, 0);
    return Append("Add", Scope(node, "add"), {Input(node, 0), scaled}, Json::object());
  }

  int ConvertAdd(const Node& node) { return ConvertMerge(node, "Add", Json::object()); }
  int ConvertConcat(const Node& node) { return ConvertMerge(node, "Concatenate", {{"axis", -1}}); }
  int ConvertScaleChannels(const Node& node) {
    return ConvertMerge(node, "Multiply", Json::object());
  }
  int ConvertScale(const Node& node) {
    return Rescale(node, Input(node), node.attributes.as<ScaleAttributes>().factor, 0);
  }
  // Left out: users of the Keras model pass normalized images.
  int ConvertNormalize(const Node& node) { return Input(node); }

  int ConvertByKind(const Node& node) {
    struct Row {
      OpKind kind;
      int (Converter::*convert)(const Node& node);
    };
    static constexpr Row kRows[] = {{op::kConv2d, &Converter::ConvertConv2d},
                                    {op::kLinear, &Converter::ConvertLinear},
                                    {op::kBatchNorm, &Converter::ConvertBatchNorm},
                                    {op::kRelu, &Converter::ConvertRelu},
                                    {op::kHardActivation, &Converter::ConvertActivation},
                                    {op::kAdd, &Converter::ConvertAdd},
                                    {op::kConcat, &Converter::ConvertConcat},
                                    {op::kScaleChannels, &Converter::ConvertScaleChannels},
                                    {op::kScaledAdd, &Converter::ConvertScaledAdd},
                                    {op::kScale, &Converter::ConvertScale},
                                    {op::kPool2d, &Converter::ConvertPool2d},
                                    {op::kPad2d, &Converter::ConvertPad2d},
                                    {op::kReshape, &Converter::ConvertReshape},
                                    {op::kDropout, &Converter::ConvertDropout},
                                    {op::kNormalize, &Converter::ConvertNormalize}};
    for (const Row& row : kRows) {
      if (row.kind == node.kind) return (this->*row.convert)(node);
    }
    throw NoKerasLayer{std::string(Name(node.kind))};
  }

  void ConvertNode(const Node& node) { layer_of_[node.outputs[0]] = ConvertByKind(node); }

  const Graph& graph_;
  std::vector<KerasNode> layers_;
  std::map<ValueId, int> layer_of_;
  // By scope: the depthwise halves of separable convolutions.
  std::map<std::string, KerasNode> depthwise_;
  std::set<std::string> names_;
};

}  // namespace

std::vector<KerasNode> ConvertToKeras(const Graph& graph, ValueId logits) {
  return Converter(graph).Convert(logits);
}

}  // namespace carole::train
