// Runs a whole graph with an Executable, on inputs and variables that are the same for every
// backend. Results are elements in plain order, in double.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/core/hash.h"
#include "src/core/rng.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/plan/executable.h"
#include "tests/support/elements.h"

namespace carole::testing {

// The results of a run: outputs in the order of MarkOutput(), gradients and moving statistics by
// the variable's name.
struct GraphResult {
  std::vector<Elements> outputs;
  std::map<std::string, Elements> gradients;
  std::map<std::string, Elements> statistics;
};

// Number i of a stream of numbers that depends on `name`: uniform in [-1, 1), exact in fp32.
inline double Uniform(const std::string& name, uint64_t i) {
  return static_cast<float>(SplitMix64(Fnv1a64(name) + i) >> 40) * 0x1p-23 - 1;
}

// Initial values of a variable, the same for every dtype and layout. Variances are positive.
inline Elements VariableElements(const Variable& v) {
  const bool variance = v.name.find("variance") != std::string::npos;
  const double scale = v.shape.rank() >= 2 ? 0.5 : 0.3;
  const double shift = v.name.find("gamma") != std::string::npos ? 1.0 : 0.0;
  Elements values(static_cast<size_t>(v.shape.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = Uniform(v.name, i);
    values[i] = variance ? 1.0 + 0.5 * u : shift + scale * u;
  }
  return values;
}

// Values of an input: labels are below `classes`, weights are 1/rows, everything else is in [-1,
// 1).
inline Elements InputElements(const Value& v, int classes = 3) {
  Elements values(static_cast<size_t>(v.shape.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = v.dtype == DType::kI32 ? static_cast<double>(i % static_cast<size_t>(classes))
                : v.name == "weights"  ? 1.0 / static_cast<double>(values.size())
                                       : Uniform(v.name, i);
  }
  return values;
}

// A graph that is compiled, bound, and filled with the values above.
class GraphRunner {
 public:
  GraphRunner(const Graph& graph, const Backend& backend, const Schedule& schedule = {})
      : graph_(graph),
        executable_(Compile(graph, backend, {.schedule = schedule})),
        store_(executable_.MakeStore()) {
    executable_.Bind(*store_);
    SetVariables();
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      const Value& v = graph.value(id);
      if (v.producer == kNone && v.variable == kNone) SetInput(v.name, InputElements(v));
    }
  }

  void SetVariables() {
    for (const Variable& v : graph_.variables()) SetVariable(v.name, VariableElements(v));
  }
  void SetVariable(const std::string& name, const Elements& values) {
    const int i = store_->Find(name);
    store_->WriteTo(store_->base_of(i), i, std::span<const double>(values));
  }
  void SetInput(const std::string& name, const Elements& values) {
    Fill(executable_.Input(name), values);
  }

  // Fills the arena with NaN: runs once with NaN in every floating-point input and weight, then
  // restores these. If a later run reads memory before writing it, the result will be NaN.
  void Poison(const RunContext& context = {}) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::vector<std::pair<std::string, Elements>> inputs;
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      const Value& v = graph_.value(id);
      if (v.producer != kNone || v.dtype == DType::kI32) continue;
      const Elements nans(static_cast<size_t>(v.shape.size()), nan);
      if (v.variable != kNone) {
        SetVariable(v.name, nans);
      } else {
        inputs.emplace_back(v.name, InputElements(v));
        SetInput(v.name, nans);
      }
    }
    executable_.Run(context);
    SetVariables();
    for (const auto& [name, values] : inputs) SetInput(name, values);
  }

  GraphResult Run(const RunContext& context = {}) {
    executable_.Run(context);
    GraphResult result;
    for (ValueId id : graph_.outputs()) result.outputs.push_back(executable_.Output(id));
    for (const Variable& v : graph_.variables()) {
      if (v.gradient != kNone) result.gradients[v.name] = Read(store_->gradients_base(), v.name);
      if (!v.trainable) result.statistics[v.name] = Read(store_->statistics_base(), v.name);
    }
    return result;
  }

  // Runs with the current values and returns the sum of the losses.
  double Loss(const RunContext& context = {}) {
    executable_.Run(context);
    double sum = 0;
    for (const auto& [name, id] : graph_.losses()) sum += executable_.Output(id)[0];
    return sum;
  }

  Executable& executable() { return executable_; }
  VariableStore& store() { return *store_; }

 private:
  Elements Read(const std::byte* arena, const std::string& name) const {
    const int i = store_->Find(name);
    Elements values(static_cast<size_t>(store_->variables()[i].shape.size()));
    store_->ReadFrom(arena, i, std::span<double>(values));
    return values;
  }

  const Graph& graph_;
  Executable executable_;
  std::unique_ptr<VariableStore> store_;
};

}  // namespace carole::testing
