// What the nets of the Inception family share: branches as tables, heads, auxiliary heads. TF-Slim
// names a layer after its place in the branch and its window ("Conv2d_0b_3x3").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nets/layers/layers.h"

namespace carole::nets::inception {

// Convolutions of the family; `weights` differs from net to net.
LayerOptions Layer(const Initializer& weights);

// One layer of a stem or branch, of stride 1 and Pad::kSame unless changed:
// Conv("1a", 3, 384).Stride(2).Valid()
struct Step {
  enum Kind : uint8_t { kConv, kMaxPool, kAveragePool, kSplit } kind;
  std::string name;
  ConvGeometry geometry;                    // a pooling has no outputs
  std::optional<Initializer> weights = {};  // in place of the net's
  std::vector<Step> parts = {};             // of kSplit: each gets the same input

  Step Stride(int64_t stride) const;
  Step Valid() const;
  Step Named(std::string_view irregular_name) const;
  Step Weights(const Initializer& initializer) const;
};
Step Conv(std::string_view place, Window window, int64_t outputs);
Step MaxPool(std::string_view place, int64_t window = 3);
Step AveragePool(std::string_view place, int64_t window = 3);
// Several layers side by side; their results are concatenated.
Step Split(std::vector<Step> parts);

ValueId Apply(NetBuilder& b, ValueId x, const Step& step, const LayerOptions& layer);

// Each step is an end point.
ValueId Stem(NetBuilder& b, ValueId x, const std::vector<Step>& steps, const LayerOptions& layer);

// Windows of factorized convolutions.
inline const Window kRow(1, 7), kColumn(7, 1), kShortRow(1, 3), kShortColumn(3, 1);

using Branch = std::vector<Step>;  // one after the other

// Branch_0, Branch_1, … from the same input, their results concatenated.
ValueId Branches(NetBuilder& b, ValueId x, const std::vector<Branch>& branches,
                 const LayerOptions& layer);
// The same in a scope of this name, which is the end point's too.
ValueId Mixed(NetBuilder& b, ValueId x, std::string_view name, const std::vector<Branch>& branches,
              const LayerOptions& layer);

// The stem of inception_v3 and inception_resnet_v2.
std::vector<Step> StemOfV3();

// In the scope Logits: average over windows of at most `window` pixels, dropout, 1x1 convolution.
// The map is at most window + 1 pixels wide.
struct ConvHead {
  std::string_view pool;  // names
  std::string_view logits;
  int64_t window;
  bool pre_logits = true;  // is an end point
};
NetOutput AddConvHead(NetBuilder& b, ValueId x, const ConvHead& head, const LayerOptions& layer);

// In the scope Logits: mean over the map, dropout, dense layer.
NetOutput AddDenseHead(NetBuilder& b, ValueId x, const LayerOptions& layer);

// The convolutions of an auxiliary head, in the current scope: 5x5 means, 1x1 to 128 channels, then
// 768 from the whole map that remains: (N,C,H,W) -> (N,768,1,1). H, W >= 5.
struct AuxNames {
  std::string_view pool = "AvgPool_1a_5x5";
  std::string_view last;  // convolution
};
ValueId AuxConvolutions(NetBuilder& b, ValueId x, const AuxNames& names, const LayerOptions& layer,
                        const Initializer& last_weights);
// In the scope AuxLogits: these and a dense layer; the logits, end point AuxLogits.
ValueId AddDenseAuxHead(NetBuilder& b, ValueId x, const AuxNames& names, std::string_view dense,
                        const LayerOptions& layer);

}  // namespace carole::nets::inception
