#include "io/weights/weights_mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <string_view>

#include "io/checkpoint/keras_layout.h"
#include "src/core/check.h"
#include "src/core/text/join_names.h"

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

// A name that a variable may have in a file, and how its elements change then.
struct Candidate {
  std::string name;
  MappedWeights::Conversion conversion = {};
};
// The first one that exists is used.
using Candidates = std::vector<Candidate>;

Candidates InLayer(const std::string& layer, std::string_view leaf,
                   const MappedWeights::Conversion& conversion = {}) {
  Candidates candidates;
  for (const std::string& keras : KerasLeaves(leaf))
    candidates.push_back({fmt::format("{}/{}", layer, keras), conversion});
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
  return {Candidate{std::move(inner)}};
}

// Maps a scope of carole to the layer of keras.applications that has its weights.
struct LayerRule {
  const char* scope;             // regular expression
  const char* layer;             // replacement text, as norm
  const char* convolution = "";  // suffix of the layer's name if it is a convolution
  // The Keras layer reads images in BGR order, as the nets of Caffe did (preprocess_input() of that
  // net). The nets of carole read RGB.
  bool reads_bgr = false;
  const char* norm = "";  // the layer of the batch norm if it is not LAYER_bn
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
    {.scope = R"(MobilenetV2/Conv)", .layer = "Conv1", .norm = "bn_Conv1"},
    {.scope = R"(MobilenetV2/expanded_conv/(\w+))",
     .layer = "expanded_conv_$1",
     .norm = "expanded_conv_$1_BN"},
    {.scope = R"(MobilenetV2/expanded_conv_(\d+)/(\w+))",
     .layer = "block_$1_$2",
     .norm = "block_$1_$2_BN"},
    {R"(MobilenetV2/Conv_1)", "Conv_1"},
    {R"(MobilenetV2/Logits/Conv2d_1c_1x1)", "predictions"},
    {R"(MobilenetV2/Logits/Conv2d_1c_1x1)", "Logits"},  // in older versions
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
    {R"(resnet_v1_\d+/logits)", "probs"},  // in the files that keras.applications distributes
};

constexpr std::string_view kBatchNorm = "/BatchNorm";

// A layer of keras.applications for a scope, and the batch norm after it.
struct ApplicationsLayer {
  std::string name, norm;
  bool reads_bgr = false;
};

// Adds the layer of ResNet50 in the version of Keras 1 and 2.0 to 2.2, which other programs and old
// files still have: res2a_branch2a and bn2a_branch2a for the first convolution of block 1, unit 1.
void AddOldResNet50Layer(const std::string& scope, std::vector<ApplicationsLayer>& layers) {
  static const std::regex pattern(
      R"(resnet_v1_50/block(\d)/unit_(\d)/bottleneck_v1/(shortcut|conv([123])))");
  std::smatch found;
  if (scope == "resnet_v1_50/conv1") layers.push_back({"conv1", "bn_conv1", true});
  if (scope == "resnet_v1_50/logits") layers.push_back({"fc1000", ""});
  if (!std::regex_match(scope, found, pattern)) return;
  const auto letter = [](const std::string& number) {
    return number.empty() ? std::string()
                          : std::string(1, static_cast<char>('a' + number[0] - '1'));
  };
  const bool is_shortcut = found[3] == "shortcut";
  const std::string id = fmt::format("{}{}_branch{}{}", std::stoi(found[1]) + 1, letter(found[2]),
                                     is_shortcut ? 1 : 2, letter(found[4]));
  layers.push_back({"res" + id, "bn" + id});
}

// `scope` is that of a layer, not of its batch norm.
std::vector<ApplicationsLayer> FindApplicationsLayers(const std::string& scope) {
  static const std::vector<std::regex> patterns = [] {
    std::vector<std::regex> all;
    for (const LayerRule& rule : kLayerRules) all.emplace_back(rule.scope);
    return all;
  }();
  std::vector<ApplicationsLayer> layers;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const LayerRule& rule = kLayerRules[i];
    if (!std::regex_match(scope, patterns[i])) continue;
    const std::string name = std::regex_replace(scope, patterns[i], rule.layer);
    const std::string norm =
        *rule.norm == '\0' ? name + "_bn" : std::regex_replace(scope, patterns[i], rule.norm);
    layers.push_back({name + rule.convolution, norm, rule.reads_bgr});
  }
  AddOldResNet50Layer(scope, layers);
  return layers;
}

// Convolutions of keras.applications may have a bias before a batch norm, those of carole have not.
// The bias is folded into the batch norm: BN(x + bias) with moving_mean equals BN(x) with
// moving_mean - bias.
Candidates AsApplicationsLayer(const std::string& name) {
  const std::string_view leaf = LeafOf(name);
  std::string scope(ScopeOf(name));
  const bool is_norm = scope.ends_with(kBatchNorm);
  if (is_norm) scope.resize(scope.size() - kBatchNorm.size());
  Candidates candidates;
  for (const ApplicationsLayer& layer : FindApplicationsLayers(scope)) {
    MappedWeights::Conversion conversion;
    if (leaf == "moving_mean") conversion.subtracted_bias = layer.name + "/bias";
    conversion.reverses_channels = layer.reads_bgr && leaf == "weights";
    const Candidates more = InLayer(is_norm ? layer.norm : layer.name, leaf, conversion);
    candidates.insert(candidates.end(), more.begin(), more.end());
  }
  return candidates;
}

// True if the variable is the filter of a layer that reads images.
bool ReadsBgr(const std::string& name) {
  return std::ranges::any_of(AsApplicationsLayer(name), [](const Candidate& candidate) {
    return candidate.conversion.reverses_channels;
  });
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

// One of the naming schemes.
struct NameRule {
  Candidates (*candidates)(const std::string& variable);
  const char* origin;  // for the report
};
constexpr NameRule kNameRules[] = {
    {AsKerasLayer, "Keras's layers"},
    {WithoutOuterScope, "TensorFlow 2's ImageNet ResNet"},
    {AsApplicationsLayer, "keras.applications"},
};

// The class in Keras of the layer that has a variable of VGG or MobileNet.
std::string_view ClassOf(const std::string& name) {
  const std::string_view leaf = LeafOf(name);
  if (leaf == "depthwise_weights") return "depthwise_conv2d";
  if (leaf != "weights" && leaf != "biases") return "batch_normalization";
  const bool is_dense = name.find("/fc") != name.npos || name.starts_with("MobilenetV2/Logits/");
  return is_dense ? "dense" : "conv2d";
}

// True for the state of an optimizer in an object-based checkpoint.
bool IsOptimizerObject(std::string_view name) {
  return name.starts_with("optimizer/") || name.find("/.OPTIMIZER_SLOT/") != name.npos;
}

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

// True if two weights of a layer differ at most in the number of its outputs.
bool HaveSameInputs(const Shape& a, const Shape& b) {
  if (a.rank() == 0 || b.rank() == 0 || (a.rank() == 1) != (b.rank() == 1)) return false;
  return a.size() * b[b.rank() - 1] == b.size() * a[a.rank() - 1];
}

}  // namespace

std::string WithoutResNetScope(const std::string& name) {
  constexpr std::string_view kScope = "resnet/";
  return name.starts_with(kScope) ? name.substr(kScope.size()) : name;
}

MappedWeights::MappedWeights(const WeightsSource& file, std::span<const VariableSpec> wanted)
    : file_(file) {
  AddTensors();
  FindModel(wanted);
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
      for (const Candidate& candidate : rule.candidates(variable.name)) {
        const std::string name = FindInFile(candidate.name);
        if (name.empty()) continue;
        Map(variable, name, candidate.conversion);
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
  int64_t before = count_missing();
  MapObjects(wanted, variables);
  report(before, "TensorFlow 2's objects");
  before = count_missing();
  if (before == std::ssize(variables)) MapNumberedLayers(wanted, variables);
  report(before, "Keras's classes of layers, by their order");
  if (count_missing() > 0 && count_missing() == before) ExplainMisfit();
}

// Tensors get the names that the program gave to its variables, unless two have the same.
void MappedWeights::AddTensors() {
  std::unordered_map<std::string, int> counts;
  for (const std::string& name : file_.names()) ++counts[file_.variable_name(name)];
  for (const std::string& name : file_.names()) {
    const std::string variable = file_.variable_name(name);
    const bool is_unique = !variable.empty() && counts[variable] == 1 && !file_.Has(variable);
    const std::string& used = is_unique ? variable : name;
    names_.push_back(used);
    tensors_[used] = {name, file_.shape(name), {}};
    used_names_[name] = used;
    if (!IsOptimizerObject(name)) AddToLayers(used);
  }
}

void MappedWeights::AddToLayers(const std::string& name) {
  const std::string_view leaf = LeafOf(name);
  std::string_view scope = name;
  while (scope.find('/') != scope.npos) {
    scope = ScopeOf(scope);
    std::vector<std::string>& weights = by_layer_[fmt::format("{}/{}", LeafOf(scope), leaf)];
    if (weights.empty() || weights.back() != name) weights.push_back(name);
  }
}

// A layer next to the net, such as a conv1 before it, may have the name of one of its layers.
void MappedWeights::FindModel(std::span<const VariableSpec> wanted) {
  std::unordered_map<std::string, int> counts;
  for (const VariableSpec& variable : wanted) {
    for (const NameRule& rule : kNameRules) {
      for (const Candidate& candidate : rule.candidates(variable.name)) {
        const auto found = by_layer_.find(candidate.name);
        if (found == by_layer_.end()) continue;
        for (const std::string& name : found->second) {
          if (("/" + name).ends_with("/" + candidate.name))
            ++counts[name.substr(0, name.size() - candidate.name.size())];
        }
      }
    }
  }
  int most = 0;
  for (const auto& [scope, count] : counts) {
    if (count == most) model_.reset();
    if (count > most) model_ = scope;
    most = std::max(most, count);
  }
}

// A model inside of another model has the name of that model in front of its layers.
std::string MappedWeights::FindInFile(const std::string& candidate) {
  if (model_ && tensors_.contains(*model_ + candidate)) return *model_ + candidate;
  if (tensors_.contains(candidate)) return candidate;
  const auto found = by_layer_.find(candidate);
  if (found == by_layer_.end()) return "";
  std::vector<std::string> weights = found->second;
  if (weights.size() == 1) return weights[0];
  std::erase_if(weights, [suffix = "/" + candidate](const std::string& name) {
    return !name.ends_with(suffix);
  });
  if (weights.size() == 1) return weights[0];
  if (weights.size() > 1) ambiguous_.push_back(JoinFirst(weights, 2));
  return "";
}

void MappedWeights::ExplainMisfit() {
  misfit_hint_ = file_.misfit_hint();
  if (ambiguous_.empty()) return;
  misfit_hint_ = fmt::format(
      "{} weights are ambiguous, such as {}; in Keras, save the inner model that is wanted by "
      "itself",
      ambiguous_.size(), ambiguous_[0]);
}

// Files without names of layers number the layers of each class in the order of the net: conv2d,
// conv2d_1, …. The order is certain only for nets without branches. All shapes must fit, except in
// the layers that classify, which may be those of another model.
void MappedWeights::MapNumberedLayers(std::span<const VariableSpec> wanted,
                                      const std::vector<std::string>& variables) {
  const auto is_chain = [](const std::string& name) {
    return name.starts_with("MobilenetV1/") || name.starts_with("MobilenetV2/") ||
           name.starts_with("vgg_1");
  };
  if (!std::ranges::all_of(variables, is_chain)) return;
  std::unordered_map<std::string_view, int> counts;
  std::vector<std::pair<const VariableSpec*, std::string>> found;
  const std::vector<KerasLayer> layers = MapToKeras(variables);
  for (const KerasLayer& layer : layers) {
    const std::string_view layer_class = ClassOf(variables[layer.variables[0]]);
    const int number = counts[layer_class]++;
    const std::string name =
        number == 0 ? std::string(layer_class) : fmt::format("{}_{}", layer_class, number);
    const bool is_last = &layer == &layers.back();
    for (size_t variable : layer.variables) {
      const VariableSpec& spec = wanted[variable];
      const std::string path = FindInFile(InLayer(name, LeafOf(spec.name))[0].name);
      const Shape shape = path.empty() ? Shape{} : tensors_.at(path).shape;
      const bool fits =
          !path.empty() && (shape == spec.shape || HaveSameElements(shape, spec.shape) ||
                            (is_last && HaveSameInputs(shape, spec.shape)));
      if (fits) found.emplace_back(&spec, path);
      if (!fits && !is_last && layer_class != "dense") return;
    }
  }
  for (const auto& [spec, path] : found)
    Map(*spec, path, {.subtracted_bias = "", .reverses_channels = ReadsBgr(spec->name)});
}

void MappedWeights::ReportUnknownChannelOrder(const std::string& variable) {
  if (!ReadsBgr(variable)) return;
  report_.push_back(variable +
                    ": assuming that its input channels are in RGB order; if the net is from "
                    "keras.applications (BGR order), save it as .h5, whose names show that");
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
      if (layer == 0 && i == 0 && name.empty())
        return;  // the first object is another kind of layer
      if (name.empty()) continue;
      const std::string value = name + std::string(kValue);
      if (!Has(variable.name)) {
        Map(variable, used_names_.at(value), {});
        ReportUnknownChannelOrder(variable.name);
      } else if (tensors_.at(variable.name).name != value) {
        continue;
      }
      for (const auto& [object, slot] : kAdamSlots)
        MapObject(name + "/.OPTIMIZER_SLOT/" + kAdam + object, variable.name + slot,
                  variable.shape);
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
  std::string& used = used_names_.at(name);
  std::ranges::replace(names_, used, mapped);
  used = mapped;
}

void MappedWeights::Map(const VariableSpec& wanted, const std::string& used_name,
                        const Conversion& conversion) {
  const std::string name = tensors_.at(used_name).name;
  RenameTensor(name, wanted.name, wanted.shape, conversion.reverses_channels);
  if (conversion.reverses_channels)
    report_.push_back(wanted.name +
                      ": reversing its input channels: Keras stores them in BGR order");
  const std::string bias =
      conversion.subtracted_bias.empty() ? "" : FindInFile(conversion.subtracted_bias);
  if (!bias.empty() && tensors_.at(bias).shape == file_.shape(name)) {
    tensors_[wanted.name].conversion.subtracted_bias = tensors_.at(bias).name;
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
