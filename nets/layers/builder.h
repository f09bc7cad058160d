// NetBuilder: a graph under construction, with TF-Slim's variable scopes and end points.
#pragma once

#include <string>
#include <string_view>

#include "nets/layers/model.h"

namespace carole::nets {

// Not thread-safe. `graph` must outlive it.
class NetBuilder {
 public:
  NetBuilder(Graph& graph, const ModelOptions& options) : graph_(graph), options_(options) {}
  NetBuilder(const NetBuilder&) = delete;
  NetBuilder& operator=(const NetBuilder&) = delete;

  // Leaves the scope when destroyed.
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
  // From now on variables and operations are called PATH/name/….
  Scope Enter(std::string_view name);
  // "resnet_v1_50/block1/" + name
  std::string Path(std::string_view name) const;

  // Adds a variable of this scope: `variable.name` is the last part of its name.
  ValueId AddVariable(Variable variable);

  // Names an intermediate result; both return `value`. Collect() puts the path before the name.
  ValueId EndPoint(const std::string& name, ValueId value);
  ValueId Collect(std::string_view name, ValueId value) { return EndPoint(Path(name), value); }

  Graph& graph() { return graph_; }
  const Shape& shape(ValueId value) const { return graph_.shape(value); }
  bool training() const { return options_.training; }
  bool dropout() const { return options_.training && options_.dropout; }
  int64_t num_classes() const { return options_.num_classes; }
  // A number for each dropout layer, from 0: keys its random numbers.
  int64_t NextDropoutLayer() { return dropout_layers_++; }

 private:
  Graph& graph_;
  const ModelOptions options_;
  int64_t dropout_layers_ = 0;
};

}  // namespace carole::nets
