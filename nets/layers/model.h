// ModelOptions and Model: the arguments and the result of building a net.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "src/backend/ops/normalize.h"
#include "src/graph/graph.h"

namespace carole::nets {

// See nets/quantization/quantize.h.
struct QuantizationOptions {
  int64_t delay = 0;  // number of the first step that is quantized, from 1 on; 0 means 1
  int bits = 8;       // of weights and activations; others are for tests
};

struct ModelOptions {
  int64_t batch_size = 32;  // of this rank
  int64_t image_size = 0;   // height and width in pixels; 0: the net's default
  int64_t channels = 0;     // 1 or 3; 0: the net's default
  int64_t num_classes = 0;  // 0: the net's default
  bool training = false;    // with batch statistics, dropout and auxiliary heads
  bool dropout = true;      // false: no dropout, even in training
  double label_smoothing = 0;
  double batch_norm_decay = 0;  // decay of all moving statistics; 0: each net's own
  bool soft_labels = false;     // the input "labels" is (N,K) instead of (N)
  // If set, the images are bytes, and the graph normalizes them first.
  std::optional<NormalizeAttributes> normalize;
  std::optional<QuantizationOptions> quantization;
  DType compute = DType::kF32;  // type of variables and results; kF64 for tests
  // Whether every end point is an output of the graph. Then operations are not fused across it.
  bool keep_end_points = false;
};

// The result of the build function of a net.
struct NetOutput {
  ValueId logits = kNone;       // (N,K)
  ValueId aux_logits = kNone;   // (N,K) of the auxiliary head; kNone if the net has none
  ValueId predictions = kNone;  // (N,K) if they are an end point of the net; else kNone
};

// The graph of a net with its inputs, losses and outputs.
//   Inputs:  "images" (N,C,H,W) fp32 or bytes; "labels" (N) int32, or soft labels (N,K);
//            "weights" (N), the weight of each sample in the loss.
//   Losses:  "softmax_cross_entropy_loss". In training, if the net has an auxiliary head, also
//            "aux_loss", times 0.4.
//   Outputs: losses and logits; for inference also the predictions.
struct Model {
  std::unique_ptr<Graph> graph;
  ValueId logits = kNone;
  ValueId aux_logits = kNone;
  ValueId predictions = kNone;  // (N,K) probabilities
};

}  // namespace carole::nets
