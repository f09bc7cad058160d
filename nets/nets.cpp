#include "nets/nets.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "nets/layers/builder.h"
#include "nets/layers/layers.h"
#include "nets/quantization/quantize.h"
#include "src/core/error.h"
#include "src/core/text/nearest_name.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

constexpr double kAuxWeight = 0.4;  // weight of the auxiliary loss
constexpr int64_t kMaxBatchSize = 1 << 16;
constexpr int64_t kMaxClasses = 1 << 20;

// Replaces zeros by the defaults of the net. Throws UsageError if an option is not supported.
ModelOptions Complete(const NetEntry& net, ModelOptions o) {
  if (o.image_size == 0) o.image_size = net.image_size;
  if (o.channels == 0) o.channels = net.channels;
  if (o.num_classes == 0) o.num_classes = net.num_classes;
  auto refuse = [&](std::string_view what, int64_t got, const std::string& want) {
    throw UsageError(fmt::format("[nets] {}: {}: got {}, want {}", net.name, what, got, want));
  };
  if (o.image_size < net.min_image_size || o.image_size > net.max_image_size) {
    refuse("unsupported image size", o.image_size,
           fmt::format("{} to {} pixels; the default of this net is {}", net.min_image_size,
                       net.max_image_size, net.image_size));
  }
  if (o.channels != 1 && o.channels != 3) {
    refuse("unsupported number of channels", o.channels, "1 (gray) or 3 (color)");
  }
  if (o.num_classes < 2 || o.num_classes > kMaxClasses) {
    refuse("unsupported number of classes", o.num_classes,
           fmt::format("2 to {}; use the number of classes of the data set", kMaxClasses));
  }
  if (o.batch_size < 1 || o.batch_size > kMaxBatchSize) {
    refuse(fmt::format("unsupported batch size ({})", Option("batch_size")), o.batch_size,
           fmt::format("1 to {}", kMaxBatchSize));
  }
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1)) {
    throw UsageError({.tag = "nets",
                      .option = "label_smoothing",
                      .problem = "out of range",
                      .got = o.label_smoothing,
                      .want = "0 to 1"});
  }
  return o;
}

ValueId AddImages(Graph& g, const ModelOptions& o) {
  const Shape shape{o.batch_size, o.channels, o.image_size, o.image_size};
  if (!o.normalize) return g.AddInput("images", shape, o.compute);
  return ops::Normalize(g, g.AddInput("images", shape, DType::kU8), *o.normalize);
}

void AddLosses(Model& model, const ModelOptions& o) {
  Graph& g = *model.graph;
  const ValueId labels = o.soft_labels
                             ? g.AddInput("labels", {o.batch_size, o.num_classes}, o.compute)
                             : g.AddInput("labels", {o.batch_size}, DType::kI32);
  const ValueId weights = g.AddInput("weights", {o.batch_size}, o.compute);
  auto add = [&](const char* name, ValueId logits, double scale) {
    g.SetScope(name);
    g.AddLoss(name, ops::SoftmaxCrossEntropy(g, logits, labels, weights,
                                             {.smoothing = o.label_smoothing, .scale = scale}));
    g.SetScope("");
  };
  if (o.training && model.aux_logits != kNone) add("aux_loss", model.aux_logits, kAuxWeight);
  add("softmax_cross_entropy_loss", model.logits, 1);
}

// Returns the value before fake quantization.
ValueId Unquantized(const Graph& g, ValueId id) {
  const NodeId producer = g.value(id).producer;
  const bool is_quantized = producer != kNone && g.nodes()[producer].kind == op::kFakeQuant;
  return is_quantized ? g.nodes()[producer].inputs[kPosition<FakeQuantInputs>.x] : id;
}

// Returns the names of the variables of the last layer that `logits` comes from.
std::vector<std::string> LastLayerVariables(const Graph& g, ValueId logits) {
  std::vector<std::string> names;
  for (ValueId id = Unquantized(g, logits); names.empty() && g.value(id).producer != kNone;) {
    const Node& node = g.nodes()[g.value(id).producer];
    for (const ValueId input : node.inputs) {
      const int variable = input == kNone ? kNone : g.value(Unquantized(g, input)).variable;
      if (variable != kNone) names.push_back(g.variables()[variable].name);
    }
    id = Unquantized(g, node.inputs[0]);
  }
  return names;
}

}  // namespace

const NetEntry* TryFindNet(std::string_view name) {
  const auto it = std::find_if(std::begin(kNets), std::end(kNets),
                               [&](const NetEntry& net) { return net.name == name; });
  return it == std::end(kNets) ? nullptr : it;
}

const NetEntry& FindNet(std::string_view name) {
  if (const NetEntry* net = TryFindNet(name)) return *net;
  std::vector<std::string> names;
  for (const NetEntry& net : kNets) names.emplace_back(net.name);
  const std::string nearest = NearestName(name, names);
  throw UsageError(fmt::format(
      "[nets] model ({}): unknown net: got {}, want a name from `carole model list`{}",
      Option("model_name"), name, nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

Model BuildModel(const NetEntry& net, const ModelOptions& given) {
  const ModelOptions options = Complete(net, given);
  Model model{.graph = std::make_unique<Graph>(options.compute)};
  Graph& g = *model.graph;
  const ValueId images = AddImages(g, options);
  NetBuilder builder(g, options);
  const NetOutput output = net.build(builder, images);
  model.logits = output.logits;
  model.aux_logits = output.aux_logits;
  model.predictions = output.predictions != kNone ? output.predictions
                                                  : Softmax(builder, output.logits, "predictions");
  AddLosses(model, options);
  g.MarkOutput(model.logits);
  if (!options.training) g.MarkOutput(model.predictions);
  if (options.quantization)
    return Quantize(std::move(model), *options.quantization, options.training);
  return model;
}

std::vector<std::vector<std::string>> ClassifierVariables(const Model& model) {
  std::vector<std::vector<std::string>> classifiers{LastLayerVariables(*model.graph, model.logits)};
  if (model.aux_logits != kNone)
    classifiers.push_back(LastLayerVariables(*model.graph, model.aux_logits));
  return classifiers;
}

}  // namespace carole::nets
