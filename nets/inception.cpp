#include "nets/inception.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/ops/ops.h"

namespace carole::nets::inception {
namespace {

constexpr double kDropoutKeep = 0.8;

LayerSpec Pool(LayerSpec::Kind kind, std::string_view prefix, std::string_view position,
               int64_t window) {
  return {.kind = kind,
          .name = fmt::format("{}_{}_{}x{}", prefix, position, window, window),
          .geometry = {.outputs = 0, .window = window}};
}

ValueId Concat(NetBuilder& b, const std::vector<ValueId>& parts) {
  const auto scope = b.Enter("concat");
  return ops::Concat(b.graph(), parts);
}

// Adds a dense layer that gives logits. Its initializer is Xavier's, whatever that of the
// convolutions is.
ValueId Dense(NetBuilder& b, ValueId x, std::string_view name, const LayerOptions& layer) {
  LayerOptions linear = layer.Linear();
  linear.weights = Initializer::XavierUniform();
  return FullyConnected(b, x, name, b.num_classes(), linear);
}

// Adds the end points that every head ends with, in the current scope.
NetOutput Finish(NetBuilder& b, ValueId logits) {
  b.EndPoint("Logits", logits);
  return {.logits = logits,
          .predictions = b.EndPoint("Predictions", Softmax(b, logits, "Predictions"))};
}

}  // namespace

LayerOptions FamilyLayerOptions(const Initializer& weights) {
  return {.weights = weights,
          .l2_weights = true,
          .batch_norm = BatchNormOptions{.decay = 0.9997, .epsilon = 0.001}};
}

LayerSpec LayerSpec::Stride(int64_t stride) const {
  LayerSpec changed = *this;
  changed.geometry.stride = stride;
  return changed;
}

LayerSpec LayerSpec::Valid() const {
  LayerSpec changed = *this;
  changed.geometry.pad = Pad::kValid;
  return changed;
}

LayerSpec LayerSpec::Named(std::string_view irregular_name) const {
  LayerSpec changed = *this;
  changed.name = irregular_name;
  return changed;
}

LayerSpec LayerSpec::Weights(const Initializer& initializer) const {
  LayerSpec changed = *this;
  changed.weights = initializer;
  return changed;
}

LayerSpec Conv(std::string_view position, Window window, int64_t outputs) {
  return {.kind = LayerSpec::kConv,
          .name = fmt::format("Conv2d_{}_{}x{}", position, window.h, window.w),
          .geometry = {.outputs = outputs, .window = window}};
}

LayerSpec MaxPool(std::string_view position, int64_t window) {
  return Pool(LayerSpec::kMaxPool, "MaxPool", position, window);
}

LayerSpec AveragePool(std::string_view position, int64_t window) {
  return Pool(LayerSpec::kAveragePool, "AvgPool", position, window);
}

LayerSpec Split(std::vector<LayerSpec> parts) {
  return {.kind = LayerSpec::kSplit,
          .name = {},
          .geometry = {.outputs = 0, .window = 1},
          .parts = std::move(parts)};
}

ValueId Apply(NetBuilder& b, ValueId x, const LayerSpec& spec, const LayerOptions& layer) {
  const ConvGeometry& geometry = spec.geometry;
  const PoolGeometry pool{
      .window = geometry.window, .stride = geometry.stride, .pad = geometry.pad};
  switch (spec.kind) {
    case LayerSpec::kConv: {
      LayerOptions own = layer;
      if (spec.weights) own.weights = *spec.weights;
      return Conv2d(b, x, spec.name, geometry, own);
    }
    case LayerSpec::kMaxPool:
      return MaxPool2d(b, x, spec.name, pool);
    case LayerSpec::kAveragePool:
      return AveragePool2d(b, x, spec.name, pool);
    case LayerSpec::kSplit: {
      std::vector<ValueId> parts;
      for (const LayerSpec& part : spec.parts) parts.push_back(Apply(b, x, part, layer));
      return Concat(b, parts);
    }
  }
  CAROLE_CHECK(false, "{}: unknown kind of layer", spec.name);
}

ValueId Stem(NetBuilder& b, ValueId x, const std::vector<LayerSpec>& specs,
             const LayerOptions& layer) {
  for (const LayerSpec& spec : specs) x = b.EndPoint(spec.name, Apply(b, x, spec, layer));
  return x;
}

ValueId Branches(NetBuilder& b, ValueId x, const std::vector<Branch>& branches,
                 const LayerOptions& layer) {
  std::vector<ValueId> results;
  for (const Branch& branch : branches) {
    const auto scope = b.Enter(fmt::format("Branch_{}", results.size()));
    ValueId y = x;
    for (const LayerSpec& spec : branch) y = Apply(b, y, spec, layer);
    results.push_back(y);
  }
  return Concat(b, results);
}

ValueId Mixed(NetBuilder& b, ValueId x, std::string_view name, const std::vector<Branch>& branches,
              const LayerOptions& layer) {
  const auto scope = b.Enter(name);
  return b.EndPoint(std::string(name), Branches(b, x, branches, layer));
}

std::vector<LayerSpec> InceptionV3Stem() {
  return {
      Conv("1a", 3, 32).Stride(2).Valid(), Conv("2a", 3, 32).Valid(), Conv("2b", 3, 64),
      MaxPool("3a").Stride(2).Valid(),     Conv("3b", 1, 80).Valid(), Conv("4a", 3, 192).Valid(),
      MaxPool("5a").Stride(2).Valid()};
}

NetOutput AddConvHead(NetBuilder& b, ValueId x, const ConvHead& head, const LayerOptions& layer) {
  const auto scope = b.Enter("Logits");
  const Window window(std::min(head.window, b.shape(x)[2]), std::min(head.window, b.shape(x)[3]));
  x = AveragePool2d(b, x, head.pool, {.window = window, .stride = 2, .pad = Pad::kValid});
  b.EndPoint(std::string(head.pool), x);
  x = Dropout(b, x, "Dropout", kDropoutKeep);
  if (head.pre_logits) b.EndPoint("PreLogits", x);
  x = Conv2d(b, x, head.logits, {.outputs = b.num_classes(), .window = 1}, layer.Linear());
  return Finish(b, Squeeze(b, x, "SpatialSqueeze"));
}

NetOutput AddDenseHead(NetBuilder& b, ValueId x, const LayerOptions& layer) {
  const auto scope = b.Enter("Logits");
  x = b.EndPoint("global_pool", GlobalAveragePool(b, x, "AvgPool_1a"));
  x = Dropout(b, Flatten(b, x, "Flatten"), "Dropout", kDropoutKeep);
  b.EndPoint("PreLogitsFlatten", x);
  return Finish(b, Dense(b, x, "Logits", layer));
}

ValueId AuxConvolutions(NetBuilder& b, ValueId x, const AuxNames& names, const LayerOptions& layer,
                        const Initializer& last_weights) {
  x = Apply(b, x, AveragePool("1a", 5).Stride(3).Valid().Named(names.pool), layer);
  x = Apply(b, x, Conv("1b", 1, 128), layer);
  const Window map(b.shape(x)[2], b.shape(x)[3]);
  return Apply(b, x, Conv("2a", map, 768).Valid().Named(names.last).Weights(last_weights), layer);
}

ValueId AddDenseAuxHead(NetBuilder& b, ValueId x, const AuxNames& names, std::string_view dense,
                        const LayerOptions& layer) {
  const auto scope = b.Enter("AuxLogits");
  x = Flatten(b, AuxConvolutions(b, x, names, layer, layer.weights), "Flatten");
  return b.EndPoint("AuxLogits", Dense(b, x, dense, layer));
}

}  // namespace carole::nets::inception
