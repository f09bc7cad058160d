// Layers, parameters, FLOPs and memory of a net, computed from its graph. `carole model summary`
// and `carole model list` show them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nets/layers/model.h"

namespace carole::nets {

// A layer: an operation such as a convolution, with its normalization and activation.
struct LayerSummary {
  std::string name;        // its scope, such as "resnet_v1_50/conv1"
  std::string kind;        // its operations, such as "conv2d+batch_norm+relu"
  Shape output;            // (N,C,H,W) or (N,C)
  int64_t parameters = 0;  // trainable parameters
  int64_t flops = 0;  // of a forward pass over the batch; a multiplication and an addition are two
};

struct ParameterCount {
  int64_t trainable = 0;
  int64_t statistics = 0;  // moving means and variances
};

struct NetSummary {
  std::vector<LayerSummary> layers;  // in the order of the graph, without losses
  ParameterCount parameters;
  int64_t flops = 0;
};

// Summarizes a graph that is neither fused nor differentiated.
NetSummary Summarize(const Graph& graph);

// The memory of the values between operations in one training step, without recomputation. Weights,
// their gradients and optimizer slots are not included.
//
// The maxima of the first two numbers come at different times. The kept values are complete when
// backward starts, and become fewer from then on. The working set is usually largest near the
// images. So the peak is less than their sum. It is the lower bound with which a memory plan is
// compared.
struct ActivationMemory {
  int64_t kept_bytes = 0;         // inputs, and results of forward that backward reads
  int64_t working_set_bytes = 0;  // other inputs and outputs of the operation that has most of them
  int64_t peak_bytes = 0;         // most bytes alive during one operation; none works in place
  int64_t planned_bytes = 0;      // arena of the memory plan: the peak plus gaps between values
};

// Measures a graph after Differentiate(). Call Fuse() before that, so that the graph contains only
// the values that an execution really makes.
ActivationMemory MeasureActivations(const Graph& graph);

// Counts the elements of all variables.
ParameterCount CountParameters(const Graph& graph);

}  // namespace carole::nets
