// NetBuilder: adds TF-Slim's variable scopes and end points to a graph that is being built.
#pragma once

#include <string>
#include <string_view>

#include "nets/layers/model.h"

namespace carole::nets {

// Not thread-safe. `graph` must outlive the builder.
class NetBuilder {
 public:
  NetBuilder(Graph& graph, const ModelOptions& options) : graph_(graph), options_(options) {}
  NetBuilder(const NetBuilder&) = delete;
  NetBuilder& operator=(const NetBuilder&) = delete;

  // Leaves the scope in its destructor.
  class [[nodiscard]] Scope {
   public:
    Scope(Graph& graph, std::string outer) : graph_(graph), outer_(std::move(outer)) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { graph_.SetScope(std::move(outer_)); }

   private:
    Graph& graph_;
    std::string outer_;
  };
  // Enters a scope, as tf.variable_scope does. While the returned object exists, the names of new
  // variables and operations begin with the current path and this name: PATH/name/...
  Scope Enter(std::string_view name);
  // Returns the path of `name` in the current scope, such as "resnet_v1_50/block1/" + name.
  std::string Path(std::string_view name) const;

  // Adds a variable of the current scope. `variable.name` is the last part of its name.
  ValueId AddVariable(Variable variable);

  // Makes an intermediate result an end point, that is, gives it a name. Both return `value`.
  // ScopedEndPoint() puts the path of the current scope before the name. Which of the two TF-Slim
  // does depends on the net.
  ValueId EndPoint(const std::string& name, ValueId value);
  ValueId ScopedEndPoint(std::string_view name, ValueId value) {
    return EndPoint(Path(name), value);
  }

  Graph& graph() { return graph_; }
  const Shape& shape(ValueId value) const { return graph_.shape(value); }
  bool is_training() const { return options_.training; }
  bool uses_dropout() const { return options_.training && options_.dropout; }
  bool will_be_quantized() const { return options_.quantization.has_value(); }
  int64_t num_classes() const { return options_.num_classes; }
  // Returns the decay of moving statistics: that of the options, or else the net's own.
  double BatchNormDecay(double own) const {
    return options_.batch_norm_decay > 0 ? options_.batch_norm_decay : own;
  }
  // Returns the number of the next dropout layer, from 0 on. It is part of the key of the layer's
  // random numbers.
  int64_t NextDropoutLayer() { return dropout_layers_++; }

 private:
  Graph& graph_;
  const ModelOptions options_;
  int64_t dropout_layers_ = 0;
};

}  // namespace carole::nets
