// Softmax, and cross entropy of the softmax.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// loss = scale * sum_n weights[n] * cross_entropy(softmax(logits[n]), t[n]), with
// t[n] = l[n] * (1 - smoothing) + smoothing / K. Here l[n] is onehot(labels[n]) or soft labels.
// dlogits = d loss / d logits, computed in the same pass. Rows with weight 0 are not read; their
// dlogits are 0. Shapes: logits (N,K), labels (N) int32 or soft labels (N,K), weights (N), loss ().
struct SoftmaxCrossEntropyAttributes {
  double smoothing = 0;
  double scale = 1;
};

namespace op {

inline int64_t SoftmaxFlops(const OpSpec& spec) { return 3 * spec.outputs[0].shape.size(); }

// x (N,K) -> probabilities (N,K)
inline constexpr OpSchema kSoftmax{
    .name = "softmax", .inputs = {Other("x")}, .outputs = {Other("y")}, .flops = SoftmaxFlops};
inline constexpr OpSchema kSoftmaxCrossEntropy{
    .name = "softmax_cross_entropy",
    .inputs = {Other("logits"), Other("labels"), Other("weights")},
    .outputs = {Other("loss"), Other("dlogits")}};

}  // namespace op

}  // namespace carole
