// The parts that the Inception nets share: branches described as tables, heads, auxiliary heads.
//
// TF-Slim names a layer after its position in the stem or branch and its window: "Conv2d_0b_3x3" is
// the 3x3 convolution at position "0b". There are exceptions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nets/layers/layers.h"

namespace carole::nets::inception {

// Returns the options of the convolutions of all Inception nets. The initial weights differ from
// net to net.
LayerOptions FamilyLayerOptions(const Initializer& weights);

// The description of a layer of a stem or branch. The functions below make one with stride 1 and
// Pad::kSame; its members return a changed copy: Conv("1a", 3, 384).Stride(2).Valid().
struct LayerSpec {
  enum Kind : uint8_t { kConv, kMaxPool, kAveragePool, kSplit } kind;
  std::string name;
  ConvGeometry geometry;                    // `outputs` is not used for pooling
  std::optional<Initializer> weights = {};  // if set, used instead of the net's initializer
  std::vector<LayerSpec> parts = {};        // of kSplit

  LayerSpec Stride(int64_t stride) const;
  LayerSpec Valid() const;  // without padding
  LayerSpec Named(std::string_view irregular_name) const;
  LayerSpec Weights(const Initializer& initializer) const;
};
// `position` is the first part of the name, such as "0b".
LayerSpec Conv(std::string_view position, Window window, int64_t outputs);
LayerSpec MaxPool(std::string_view position, int64_t window = 3);
LayerSpec AveragePool(std::string_view position, int64_t window = 3);
// Several layers on the same input. Their results are concatenated.
LayerSpec Split(std::vector<LayerSpec> parts);

// Adds the layer to the net and returns its result.
ValueId Apply(NetBuilder& b, ValueId x, const LayerSpec& spec, const LayerOptions& layer);

// Adds layers one after the other. Each result is an end point.
ValueId Stem(NetBuilder& b, ValueId x, const std::vector<LayerSpec>& specs,
             const LayerOptions& layer);

// Windows of factorized convolutions.
inline const Window kRow(1, 7), kColumn(7, 1), kShortRow(1, 3), kShortColumn(3, 1);

using Branch = std::vector<LayerSpec>;  // layers one after the other

// Adds the branches Branch_0, Branch_1, ... on the same input and concatenates their results.
ValueId Branches(NetBuilder& b, ValueId x, const std::vector<Branch>& branches,
                 const LayerOptions& layer);
// The same in a scope of this name. The result is an end point of this name.
ValueId Mixed(NetBuilder& b, ValueId x, std::string_view name, const std::vector<Branch>& branches,
              const LayerOptions& layer);

// The stem of inception_v3 and inception_resnet_v2.
std::vector<LayerSpec> InceptionV3Stem();

// Adds a head in the scope Logits: average pooling, dropout, and a 1x1 convolution, which gives the
// logits. The map x must have at most window + 1 pixels in height and width.
struct ConvHead {
  std::string_view pool;    // name of the pooling
  std::string_view logits;  // name of the convolution
  int64_t window;           // of the pooling, in pixels; a smaller map is averaged as a whole
  bool pre_logits = true;   // whether PreLogits is an end point
};
NetOutput AddConvHead(NetBuilder& b, ValueId x, const ConvHead& head, const LayerOptions& layer);

// Adds a head in the scope Logits: mean over the map, dropout, dense layer.
NetOutput AddDenseHead(NetBuilder& b, ValueId x, const LayerOptions& layer);

// Adds the convolutions of an auxiliary head in the current scope: average pooling 5x5 with stride
// 3, a 1x1 convolution to 128 channels, then a convolution over the whole map to 768 channels:
// (N,C,H,W) -> (N,768,1,1). H and W must be at least 5.
struct AuxNames {
  std::string_view pool = "AvgPool_1a_5x5";
  std::string_view last;  // name of the last convolution
};
ValueId AuxConvolutions(NetBuilder& b, ValueId x, const AuxNames& names, const LayerOptions& layer,
                        const Initializer& last_weights);
// Adds these convolutions and a dense layer in the scope AuxLogits. Returns the logits, which are
// the end point AuxLogits. `dense` is the name of the dense layer.
ValueId AddDenseAuxHead(NetBuilder& b, ValueId x, const AuxNames& names, std::string_view dense,
                        const LayerOptions& layer);

}  // namespace carole::nets::inception
