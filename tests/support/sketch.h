// Builds small graphs for tests. Each layer takes one line.
#pragma once

#include <string>

#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/softmax.h"
#include "src/graph/graph.h"
#include "src/ops/ops.h"

namespace carole::testing {

// Appends layers to a graph and makes their variables.
class Sketch {
 public:
  explicit Sketch(Graph& graph) : graph(graph) {}

  // Adds a variable of our shape; TensorFlow's shape follows from it.
  ValueId Weight(const std::string& name, const Shape& s, bool trainable = true) {
    const Shape tf_shape = s.rank() == 4   ? Shape{s[2], s[3], s[1], s[0]}
                           : s.rank() == 2 ? Shape{s[1], s[0]}
                                           : s;
    return graph.AddVariable({.name = name,
                              .tf_shape = tf_shape,
                              .shape = s,
                              .initializer = {},
                              .trainable = trainable});
  }

  ValueId Conv(ValueId x, const std::string& name, int64_t k, int64_t window,
               const Conv2dAttributes& a = {}, bool bias = false) {
    graph.SetScope(name);
    const ValueId w = Weight(name + "/weights", {k, graph.shape(x)[1] / a.groups, window, window});
    return ops::Conv2d(graph, x, w, bias ? Weight(name + "/biases", {k}) : kNone, a);
  }

  ValueId BatchNorm(ValueId x, const std::string& name, const BatchNormAttributes& a = {},
                    bool gamma = true, bool beta = true) {
    graph.SetScope(name);
    const Shape channels{graph.shape(x)[1]};
    return ops::BatchNorm(graph,
                          {.x = x,
                           .gamma = gamma ? Weight(name + "/gamma", channels) : kNone,
                           .beta = beta ? Weight(name + "/beta", channels) : kNone,
                           .moving_mean = Weight(name + "/moving_mean", channels, false),
                           .moving_variance = Weight(name + "/moving_variance", channels, false)},
                          a);
  }

  ValueId Linear(ValueId x, const std::string& name, int64_t outputs, bool bias = true) {
    graph.SetScope(name);
    const ValueId w = Weight(name + "/weights", {outputs, graph.shape(x)[1]});
    return ops::Linear(graph, x, w, bias ? Weight(name + "/biases", {outputs}) : kNone);
  }

  ValueId Relu(ValueId x, double ceiling = 0) { return ops::Relu(graph, x, ceiling); }
  ValueId Add(ValueId a, ValueId b) { return ops::Add(graph, a, b); }

  ValueId Pool(ValueId x, Pool2dAttributes a = {}, bool training = true) {
    return ops::Pool2d(graph, x, a, training);
  }

  // (N,…) -> (N, elements in a row)
  ValueId Flatten(ValueId x) {
    const int64_t rows = graph.shape(x)[0];
    return ops::Reshape(graph, x, {rows, graph.shape(x).size() / rows});
  }

  // A linear layer with three classes and a loss: (N,…) -> loss. Labels and weights are inputs of
  // the graph. Marks the loss as output.
  ValueId Head(ValueId x, const std::string& name = "head",
               const SoftmaxCrossEntropyAttributes& a = {}) {
    const ValueId flat = graph.shape(x).rank() == 2 ? x : Flatten(x);
    return Loss(Linear(flat, name, 3), name, a);
  }
  ValueId Loss(ValueId logits, const std::string& name = "loss",
               const SoftmaxCrossEntropyAttributes& a = {}) {
    const Shape rows{graph.shape(logits)[0]};
    if (labels_ == kNone) {
      labels_ = graph.AddInput("labels", rows, DType::kI32);
      weights_ = graph.AddInput("weights", rows, graph.compute());
    }
    graph.SetScope(name + "/loss");
    const ValueId loss = ops::SoftmaxCrossEntropy(graph, logits, labels_, weights_, a);
    graph.AddLoss(name + "_loss", loss);
    return loss;
  }

  Graph& graph;

 private:
  ValueId labels_ = kNone, weights_ = kNone;
};

}  // namespace carole::testing
