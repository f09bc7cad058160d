// A batch norm that is folded into the layer before it, for quantization. The weights are
// multiplied by what batch norm would multiply the results with. They can then be quantized as
// inference will use them (Jacob et al. 2018, section 3.2; Krishnamoorthi 2018, section 3.2.2).
#pragma once

#include "src/backend/ops/op.h"
#include "src/core/check.h"

namespace carole {

// mm and mv are the moving mean and variance, m and v are the mean and variance of the batch. The
// ops compute:
//   rm = 1/sqrt(mv + epsilon)                       kFoldWeights
//   folded = w * gamma * rm                         kFoldWeights
//   z = layer(x, w)                                 the layer itself
//   c = layer(x, Q(folded))                         the layer again, with fake quantization Q
//   rb = 1/sqrt(v + epsilon)                        kFoldedBatchNorm, as everything below
//   m = mean(z), v = mean((z - m)^2)
//   y = c * rb/rm + beta - gamma * m * rb
//   mm += (1 - decay) * (m - mm)                    and mv with the unbiased variance, as in
//                                                   op::kBatchNorm
// Without Q, y is the result of batch norm. In inference, z is absent and
//   y = c + beta - gamma * mm * rm
//
// kFoldWeights reads mv before kFoldedBatchNorm updates it: it makes rm, and backward reads that.
// Absent gamma: 1, absent beta: 0. "Valid rows", n and sum_over_ranks are those of op::kBatchNorm.
struct FoldedBatchNormAttributes {
  double epsilon = 1e-3;
  double decay = 0.999;
  bool training = true;
};

// w and folded: (K,...), the same channels as gamma and moving_variance (K).
// Backward: dw = dfolded * gamma * rm; dgamma = sum of dfolded * w over all but channels, times rm.
template <typename T>
struct FoldWeightsInputs {
  T w = Absent<T>(), gamma = Absent<T>(), moving_variance = Absent<T>();
};
template <typename T>
struct FoldWeightsOutputs {
  T folded = Absent<T>(), rm = Absent<T>();
};
template <typename T>
struct FoldWeightsBackwardInputs {
  T dfolded = Absent<T>(), w = Absent<T>(), gamma = Absent<T>(), rm = Absent<T>();
};
template <typename T>
struct FoldWeightsBackwardOutputs {
  T dw = Absent<T>(), dgamma = Absent<T>();
};

// c, z and y: (N,K,P,Q) or (N,K); the others (K). mean and rb are outputs in training.
// Backward, with sums over valid rows:
//   dbeta = sum dy;  dc = dy * rb/rm
//   dgamma = -m * rb * dbeta                                 kFoldWeights adds its own part.
//   drb = sum(dy * c)/rm - gamma * m * dbeta
//   dz = -(gamma * rb * dbeta + drb * rb^3 * (z - m)) / n in valid rows, 0 in others.
// If sum_over_ranks is set, dz uses sums over all ranks. dgamma and dbeta use sums of this rank.
template <typename T>
struct FoldedBatchNormInputs {
  T c = Absent<T>(), z = Absent<T>(), gamma = Absent<T>(), beta = Absent<T>(), rm = Absent<T>(),
    moving_mean = Absent<T>(), moving_variance = Absent<T>();
};
template <typename T>
struct FoldedBatchNormOutputs {
  T y = Absent<T>(), mean = Absent<T>(), rb = Absent<T>();
};
template <typename T>
struct FoldedBatchNormBackwardInputs {
  T dy = Absent<T>(), c = Absent<T>(), z = Absent<T>(), gamma = Absent<T>(), rm = Absent<T>(),
    mean = Absent<T>(), rb = Absent<T>();
};
template <typename T>
struct FoldedBatchNormBackwardOutputs {
  T dc = Absent<T>(), dz = Absent<T>(), dgamma = Absent<T>(), dbeta = Absent<T>();
};

namespace op {

inline std::vector<TensorSpec> FoldWeightsShapes(const OpSpec& spec, std::string_view scope) {
  const auto in = Named<FoldWeightsInputs>(spec.inputs);
  const TensorSpec channels{.shape = {in.w.shape[0]}, .dtype = in.w.dtype};
  CAROLE_CHECK_EQ(in.moving_variance.shape, channels.shape, "{}: fold into {}", scope,
                  in.w.shape.ToString());
  return List(FoldWeightsOutputs<TensorSpec>{.folded = {.shape = in.w.shape, .dtype = in.w.dtype},
                                             .rm = channels});
}

inline std::vector<TensorSpec> FoldedBatchNormShapes(const OpSpec& spec, std::string_view scope) {
  const auto in = Named<FoldedBatchNormInputs>(spec.inputs);
  const bool training = spec.attributes.as<FoldedBatchNormAttributes>().training;
  const Shape channels{in.c.shape[1]};
  for (const TensorSpec& t : {in.gamma, in.beta, in.rm, in.moving_mean, in.moving_variance}) {
    if (t.present)
      CAROLE_CHECK_EQ(t.shape, channels, "{}: folded batch norm of {}", scope,
                      in.c.shape.ToString());
  }
  CAROLE_CHECK_EQ(in.z.present, training, "{}: folded batch norm", scope);
  const TensorSpec statistic{
      .shape = channels, .dtype = in.rm.dtype, .layout = {}, .present = training};
  return List(FoldedBatchNormOutputs<TensorSpec>{
      .y = {.shape = in.c.shape, .dtype = in.c.dtype}, .mean = statistic, .rb = statistic});
}

inline constexpr OpSchema kFoldWeightsBackward{
    .name = "fold_weights_backward",
    .inputs = FoldWeightsBackwardInputs<Port>{.dfolded = Other("dfolded"),
                                              .w = Other("w"),
                                              .gamma = Optional(Other("gamma")),
                                              .rm = Other("rm")},
    .outputs = FoldWeightsBackwardOutputs<Port>{.dw = Optional(Other("dw")),
                                                .dgamma = Optional(Other("dgamma"))}};
inline constexpr OpSchema kFoldWeights{
    .name = "fold_weights",
    .inputs = FoldWeightsInputs<Port>{.w = Other("w"),
                                      .gamma = Optional(Other("gamma")),
                                      .moving_variance = Other("moving_variance")},
    .outputs = FoldWeightsOutputs<Port>{.folded = Other("folded"), .rm = Other("rm")},
    .infer = FoldWeightsShapes,
    .backward = &kFoldWeightsBackward};

inline constexpr OpSchema kFoldedBatchNormBackward{
    .name = "folded_batch_norm_backward",
    .inputs = FoldedBatchNormBackwardInputs<Port>{.dy = Activation("dy"),
                                                  .c = Activation("c"),
                                                  .z = Activation("z"),
                                                  .gamma = Optional(Other("gamma")),
                                                  .rm = Other("rm"),
                                                  .mean = Other("mean"),
                                                  .rb = Other("rb")},
    .outputs = FoldedBatchNormBackwardOutputs<Port>{.dc = Optional(Activation("dc")),
                                                    .dz = Optional(Activation("dz")),
                                                    .dgamma = Optional(Other("dgamma")),
                                                    .dbeta = Optional(Other("dbeta"))}};
inline constexpr OpSchema kFoldedBatchNorm{
    .name = "folded_batch_norm",
    .inputs = FoldedBatchNormInputs<Port>{.c = Activation("c"),
                                          .z = Optional(Activation("z")),
                                          .gamma = Optional(Other("gamma")),
                                          .beta = Optional(Other("beta")),
                                          .rm = Other("rm"),
                                          .moving_mean = Other("moving_mean"),
                                          .moving_variance = Other("moving_variance")},
    .outputs =
        FoldedBatchNormOutputs<Port>{
            .y = Activation("y"), .mean = Optional(Other("mean")), .rb = Optional(Other("rb"))},
    .infer = FoldedBatchNormShapes,
    .backward = &kFoldedBatchNormBackward};

}  // namespace op

}  // namespace carole
