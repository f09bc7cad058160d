// What a net consists of, read off its graph: for `carole model summary` and `carole model list`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nets/layers/model.h"

namespace carole::nets {

// One layer: its linear operation with the normalization and activation behind it.
struct LayerRow {
  std::string name;        // scope: "resnet_v1_50/conv1"
  std::string kind;        // "conv2d+batch_norm+relu"
  Shape output;            // (N,C,H,W) or (N,C)
  int64_t parameters = 0;  // trainable
  int64_t flops = 0;       // of one forward pass over the batch; multiply and add are two
};

struct ParameterCount {
  int64_t trainable = 0;
  int64_t statistics = 0;  // moving means and variances
};

struct NetSummary {
  std::vector<LayerRow> layers;  // in the order of the graph, losses left out
  ParameterCount parameters;
  int64_t flops = 0;
};

// Of a graph that is neither fused nor differentiated.
NetSummary Summarize(const Graph& graph);

// Memory of the values between operations in one training step, without recomputation; weights,
// their gradients and slots not counted. The first two do not fall together: what is kept is
// complete when backward starts and shrinks from then on, the working set is mostly largest near
// the images. So the peak is the bound that a plan is measured by, and lies below their sum.
struct ActivationMemory {
  int64_t kept_bytes = 0;         // what the forward pass makes and backward reads; the inputs
  int64_t working_set_bytes = 0;  // of the operation that needs most beside that
  int64_t peak_bytes = 0;         // the most that lives at one operation, nothing done in place
  int64_t planned_bytes = 0;      // of an arena that holds it: what finding places adds
};

// Of a graph that Differentiate() has seen; after Fuse() it has the values that really exist.
ActivationMemory MeasureActivations(const Graph& graph);

ParameterCount CountParameters(const Graph& graph);

}  // namespace carole::nets
