#include "io/weights/weights_mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <string_view>

#include "io/checkpoint/keras_layout.h"
#include "src/core/check.h"

namespace carole::io {
namespace {

// The names that Keras may use for a variable with this last component.
std::vector<std::string> KerasLeaves(std::string_view leaf) {
  if (leaf == "weights") return {"kernel"};
  if (leaf == "biases") return {"bias"};
  if (leaf == "depthwise_weights") return {"depthwise_kernel", "kernel"};
  if (leaf == "pointwise_weights") return {"pointwise_kernel"};
  return {std::string(leaf)};
}

// Names that a variable may have in a file. The first one that exists is used.
using Candidates = std::vector<std::string>;

Candidates InLayer(const std::string& layer, std::string_view leaf) {
  Candidates candidates;
  for (const std::string& keras : KerasLeaves(leaf))
    candidates.push_back(fmt::format("{}/{}", layer, keras));
  return candidates;
}

// The names in a net that Keras rebuilt from a checkpoint of carole and saved.
Candidates AsKerasLayer(const std::string& name) {
  return InLayer(KerasLayerName(ScopeOf(name)), LeafOf(name));
}

// The names in TensorFlow 2's ImageNet ResNet.
Candidates WithoutOuterScope(const std::string& name) {
  std::string inner = WithoutResNetScope(name);
  if (inner == name) return {};
  return {std::move(inner)};
}

// Maps a scope of carole to the layer of keras.applications that has its weights.
struct LayerRule {
  const char* scope;             // regular expression
  const char* layer;             // replacement text; a batch norm is the layer LAYER_bn
  const char* convolution = "";  // suffix of the layer's name if it is a convolution
  // The Keras layer reads images in BGR order, as the nets of Caffe did (preprocess_input() of that
  // net). The nets of carole read RGB.
  bool reads_bgr = false;
};
constexpr LayerRule kLayerRules[] = {
    {.scope = R"(vgg_1[69]/conv1/conv1_1)", .layer = "block1_conv1", .reads_bgr = true},
    {R"(vgg_1[69]/conv(\d)/conv\d_(\d))", "block$1_conv$2"},
    {R"(vgg_1[69]/fc6)", "fc1"},
    {R"(vgg_1[69]/fc7)", "fc2"},
    {R"(vgg_1[69]/fc8)", "predictions"},
    {R"(MobilenetV1/Conv2d_0)", "conv1"},
    {R"(MobilenetV1/Conv2d_(\d+)_depthwise)", "conv_dw_$1"},
    {R"(MobilenetV1/Conv2d_(\d+)_pointwise)", "conv_pw_$1"},
    {R"(MobilenetV1/Logits/Conv2d_1c_1x1)", "conv_preds"},
    {R"(resnet_v1_\d+/conv1)", "conv1", "_conv", true},
    {R"(resnet_v1_\d+/block1/unit_(\d+)/bottleneck_v1/conv(\d))", "conv2_block$1_$2", "_conv"},
    {R"(resnet_v1_\d+/block1/unit_(\d+)/bottleneck_v1/shortcut)", "conv2_block$1_0", "_conv"},
    {R"(resnet_v1_\d+/block2/unit_(\d+)/bottleneck_v1/conv(\d))", "conv3_block$1_$2", "_conv"},
    {R"(resnet_v1_\d+/block2/unit_(\d+)/bottleneck_v1/shortcut)", "conv3_block$1_0", "_conv"},
    {R"(resnet_v1_\d+/block3/unit_(\d+)/bottleneck_v1/conv(\d))", "conv4_block$1_$2", "_conv"},
    {R"(resnet_v1_\d+/block3/unit_(\d+)/bottleneck_v1/shortcut)", "conv4_block$1_0", "_conv"},
    {R"(resnet_v1_\d+/block4/unit_(\d+)/bottleneck_v1/conv(\d))", "conv5_block$1_$2", "_conv"},
    {R"(resnet_v1_\d+/block4/unit_(\d+)/bottleneck_v1/shortcut)", "conv5_block$1_0", "_conv"},
    {R"(resnet_v1_\d+/logits)", "predictions"},
};

constexpr std::string_view kBatchNorm = "/BatchNorm";

// The layer of keras.applications for a scope.
struct ApplicationsLayer {
  std::string name;
  bool reads_bgr = false;
};
std::optional<ApplicationsLayer> FindApplicationsLayer(std::string_view scope) {
  const bool is_norm = scope.ends_with(kBatchNorm);
  if (is_norm) scope.remove_suffix(kBatchNorm.size());
  static const std::vector<std::regex> patterns = [] {
    std::vector<std::regex> all;
    for (const LayerRule& rule : kLayerRules) all.emplace_back(rule.scope);
    return all;
  }();
  for (size_t i = 0; i < patterns.size(); ++i) {
    const LayerRule& rule = kLayerRules[i];
    if (!std::regex_match(scope.begin(), scope.end(), patterns[i])) continue;
    return ApplicationsLayer{std::regex_replace(std::string(scope), patterns[i], rule.layer) +
                                 (is_norm ? "_bn" : rule.convolution),
                             rule.reads_bgr};
  }
  return std::nullopt;
}

Candidates AsApplicationsLayer(const std::string& name) {
  const auto layer = FindApplicationsLayer(ScopeOf(name));
  return layer ? InLayer(layer->name, LeafOf(name)) : Candidates{};
}

// True if the variable is the filter of a layer that reads images.
bool ReadsBgr(const std::string& name) {
  const auto layer = FindApplicationsLayer(ScopeOf(name));
  return layer && layer->reads_bgr && LeafOf(name) == "weights";
}

// If the variable is a batch norm's moving mean, returns the bias of the convolution before it,
// else
// "". Convolutions of carole have no bias there. It is folded into the batch norm: BN(x + bias)
// with moving_mean equals BN(x) with moving_mean - bias.
std::string PrecedingBias(const std::string& name) {
  const std::string_view scope = ScopeOf(name);
  if (!name.ends_with("/moving_mean") || !scope.ends_with(kBatchNorm)) return "";
  const auto layer = FindApplicationsLayer(scope.substr(0, scope.size() - kBatchNorm.size()));
  return layer ? layer->name + "/bias" : "";
}

// Reverses the order of the input channels C of a filter (R,S,C,K), or of its slots and averages.
void ReverseInputChannels(const Shape& shape, std::span<float> filter) {
  if (shape.rank() != 4) return;
  const auto outputs = static_cast<size_t>(shape[3]), channels = static_cast<size_t>(shape[2]);
  for (size_t pixel = 0; pixel < filter.size(); pixel += channels * outputs) {
    for (size_t low = 0, high = channels - 1; low < high; ++low, --high) {
      std::swap_ranges(filter.begin() + static_cast<ptrdiff_t>(pixel + low * outputs),
                       filter.begin() + static_cast<ptrdiff_t>(pixel + (low + 1) * outputs),
                       filter.begin() + static_cast<ptrdiff_t>(pixel + high * outputs));
    }
  }
}

MappedWeights::Conversion ConversionOfApplications(const std::string& variable) {
  return {.subtracted_bias = PrecedingBias(variable), .reverses_channels = ReadsBgr(variable)};
}
MappedWeights::Conversion NoConversion(const std::string& /*variable*/) { return {}; }

// One of the naming schemes.
struct NameRule {
  Candidates (*candidates)(const std::string& variable);
  const char* origin;  // for the report
  MappedWeights::Conversion (*conversion)(const std::string& variable) = NoConversion;
};
constexpr NameRule kNameRules[] = {
    {AsKerasLayer, "Keras's layers"},
    {WithoutOuterScope, "TensorFlow 2's ImageNet ResNet"},
    {AsApplicationsLayer, "keras.applications", ConversionOfApplications},
};

// The suffix of a tensor's name in TensorFlow 2's object-based checkpoints.
constexpr std::string_view kValue = "/.ATTRIBUTES/VARIABLE_VALUE";

// Returns the name, without kValue, of a weight in an object-based checkpoint of a Keras net; "" if
// the file does not have it. Such checkpoints number the layers that have weights.
std::string ObjectName(const WeightsSource& file, size_t layer, std::string_view weight) {
  for (const char* root : {"", "model/"}) {
    std::string name = fmt::format("{}layer_with_weights-{}/{}", root, layer, weight);
    if (file.Has(name + std::string(kValue))) return name;
  }
  return "";
}

// TensorFlow 1's Adam in such a checkpoint, as an Estimator of a Keras net writes it: the prefix of
// the object, and its slots for each variable with carole's names.
constexpr char kAdam[] = "optimizer/optimizer/";
constexpr std::pair<const char*, const char*> kAdamSlots[] = {{"m", "/Adam"}, {"v", "/Adam_1"}};

// True if two shapes hold the same elements in the same order: a kernel may be a matrix in one net
// and a convolution over the whole feature map in the other.
bool HaveSameElements(const Shape& a, const Shape& b) {
  return a.rank() > 1 && b.rank() > 1 && a.rank() != b.rank() && a.size() == b.size() &&
         a[a.rank() - 1] == b[b.rank() - 1];
}

}  // namespace

std::string WithoutResNetScope(const std::string& name) {
  constexpr std::string_view kScope = "resnet/";
  return name.starts_with(kScope) ? name.substr(kScope.size()) : name;
}

MappedWeights::MappedWeights(const WeightsSource& file, std::span<const VariableSpec> wanted)
    : file_(file), names_(file.names()) {
  for (const std::string& name : names_) tensors_[name] = {name, file.shape(name), {}};
  std::vector<std::string> variables;
  for (const VariableSpec& variable : wanted) variables.push_back(variable.name);
  const auto count_missing = [&] {
    return std::ranges::count_if(variables, [&](const std::string& v) { return !Has(v); });
  };
  const auto report = [&](int64_t before, const char* origin) {
    const int64_t found = before - count_missing();
    if (found > 0)
      report_.push_back(fmt::format("{} of {} variables found under the names of {}", found,
                                    variables.size(), origin));
  };
  for (const NameRule& rule : kNameRules) {
    const int64_t before = count_missing();
    for (const VariableSpec& variable : wanted) {
      if (Has(variable.name)) continue;
      for (const std::string& name : rule.candidates(variable.name)) {
        if (!file.Has(name)) continue;
        Map(variable, name, rule.conversion(variable.name));
        break;
      }
    }
    report(before, rule.origin);
    if (count_missing() < before && rule.candidates == AsApplicationsLayer &&
        variables.front().starts_with("resnet_v1_")) {
      report_.emplace_back(
          "Keras's ResNet strides in the first unit of a block, this net in the last: the weights "
          "fit, but need training before they are useful");
    }
  }
  const int64_t before = count_missing();
  MapObjects(wanted, variables);
  report(before, "TensorFlow 2's objects");
}

// Object-based names do not contain the names of layers, so layers are matched by their order.
void MappedWeights::MapObjects(std::span<const VariableSpec> wanted,
                               const std::vector<std::string>& variables) {
  const std::vector<KerasLayer> layers = MapToKeras(variables);
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (size_t i = 0; i < layers[layer].variables.size(); ++i) {
      const VariableSpec& variable = wanted[layers[layer].variables[i]];
      const std::string_view weight = LeafOf(layers[layer].weight_names[i]);
      const std::string name = ObjectName(file_, layer, weight.substr(0, weight.find(':')));
      if (Has(variable.name) || name.empty()) continue;
      Map(variable, name + std::string(kValue), {});
      for (const auto& [object, slot] : kAdamSlots)
        MapObject(name + "/.OPTIMIZER_SLOT/" + kAdam + object, variable.name + slot,
                  variable.shape);
      if (ReadsBgr(variable.name)) {
        report_.push_back(variable.name +
                          ": assuming that its input channels are in RGB order; if the net is "
                          "from keras.applications (BGR order), save it as .h5, whose names show "
                          "that");
      }
    }
  }
  for (const char* power : {"beta1_power", "beta2_power"})
    MapObject(std::string(kAdam) + power, power, {});
}

void MappedWeights::MapObject(const std::string& object, const std::string& mapped,
                              const Shape& wanted) {
  const std::string name = object + std::string(kValue);
  if (file_.Has(name) && !Has(mapped)) RenameTensor(name, mapped, wanted, false);
}

void MappedWeights::RenameTensor(const std::string& name, const std::string& mapped,
                                 const Shape& wanted, bool reverses_channels) {
  const Shape shape = file_.shape(name);
  tensors_[mapped] = {name,
                      HaveSameElements(shape, wanted) ? wanted : shape,
                      {.subtracted_bias = "", .reverses_channels = reverses_channels}};
  std::ranges::replace(names_, name, mapped);
}

void MappedWeights::Map(const VariableSpec& wanted, const std::string& name,
                        const Conversion& conversion) {
  RenameTensor(name, wanted.name, wanted.shape, conversion.reverses_channels);
  if (conversion.reverses_channels)
    report_.push_back(wanted.name +
                      ": reversing its input channels: Keras stores them in BGR order");
  const std::string& bias = conversion.subtracted_bias;
  const bool has_bias = !bias.empty() && file_.Has(bias) && file_.shape(bias) == file_.shape(name);
  if (has_bias) {
    tensors_[wanted.name].conversion.subtracted_bias = bias;
    std::erase(names_, bias);
  }
  for (const std::string& original : file_.names()) {
    if (original.starts_with(name + "/")) {
      RenameTensor(original, wanted.name + original.substr(name.size()), wanted.shape,
                   conversion.reverses_channels);
    }
  }
}

void MappedWeights::Read(const std::string& name, std::span<float> out) const {
  const MappedTensor& tensor = tensors_.at(name);
  file_.Read(tensor.name, out);
  if (tensor.conversion.reverses_channels) ReverseInputChannels(tensor.shape, out);
  if (tensor.conversion.subtracted_bias.empty()) return;
  std::vector<float> bias(out.size());
  file_.Read(tensor.conversion.subtracted_bias, bias);
  for (size_t i = 0; i < out.size(); ++i) out[i] -= bias[i];
}

}  // namespace carole::io
