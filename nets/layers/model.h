// What a caller asks of a net and gets back: a graph with its inputs, losses and results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "src/graph/graph.h"

namespace carole::nets {

struct ModelOptions {
  int64_t batch_size = 32;  // of this rank
  int64_t image_size = 0;   // pixels of height and width; 0: the net's default
  int64_t channels = 0;     // 1 or 3; 0: the net's default
  int64_t num_classes = 0;  // 0: the net's default
  bool training = false;    // batch statistics, dropout, auxiliary heads
  bool dropout = true;      // false: dropout is the identity in training too
  double label_smoothing = 0;
  std::optional<NormalizeAttributes> normalize;  // given: images are bytes, normalized first
  DType compute = DType::kF32;
  bool keep_end_points = false;  // every end point is an output: nothing is fused across it
};

// What a net's build function returns.
struct NetOutput {
  ValueId logits = kNone;       // (N,K)
  ValueId aux_logits = kNone;   // (N,K) of the auxiliary head, if the net has one
  ValueId predictions = kNone;  // (N,K), if the net names them as an end point
};

// Inputs of the graph: "images" (N,C,H,W), fp32 or bytes, "labels" (N) int32, "weights" (N).
// Losses: "softmax_cross_entropy_loss", and in training with an auxiliary head "aux_loss" (times
// 0.4). Outputs: losses and logits; without training the predictions too.
struct Model {
  std::unique_ptr<Graph> graph;
  ValueId logits = kNone;
  ValueId aux_logits = kNone;
  ValueId predictions = kNone;  // (N,K) probabilities
};

}  // namespace carole::nets
