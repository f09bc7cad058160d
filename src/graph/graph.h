// The static graph of one training or inference step: values with fixed shapes, and nodes, which
// are operations that make values from values. Nodes are in an order in which they can run.
//
// Nets append the forward operations (src/ops), Differentiate() (autodiff.h) appends the backward
// ones, and rewrites.h fuses operations. Compile() (plan/compiler.h) turns the graph into a plan,
// and an Executable runs the plan.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/backend/ops/op.h"

namespace carole {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNone = -1;  // no value (an absent optional input or output), or no node

class Graph;
struct Node;

// The arguments of an operation's gradient rule.
struct GradientArgs {
  Graph& graph;
  const Node& node;
  const std::vector<ValueId>& dy;   // gradient of each output, kNone if there is none
  const std::vector<bool>& wanted;  // for each input, whether its gradient is needed
};
// Appends the backward operations of a node. Returns the gradient of each input, kNone if it is
// zero or not wanted.
using GradientRule = std::vector<ValueId> (*)(const GradientArgs& args);

enum class Phase : uint8_t { kForward, kBackward };

struct Node {
  OpKind kind;
  OpAttributes attributes = {};
  std::vector<ValueId> inputs = {};
  std::vector<ValueId> outputs = {};  // AddNode() sets them
  std::string name = {};              // scope, for messages, summaries and traces
  GradientRule gradient = nullptr;    // null: no gradient flows through this node
  Phase phase = Phase::kForward;
  bool dead = false;  // removed by a rewrite
};

// A tensor of the graph: an input, a variable or a result of a node.
struct Value {
  Shape shape;
  DType dtype = DType::kF32;
  NodeId producer = kNone;   // kNone: input or variable
  int32_t variable = kNone;  // index into variables(); kNone: no variable
  std::string name = {};     // of an input or variable
};

// The distribution of a variable's initial values. fan_in and fan_out are defined as in
// tf.variance_scaling_initializer.
//   kConstant:        `value`
//   kTruncatedNormal: normal with standard deviation `value`; values beyond 2 deviations are drawn
//                     again
//   kXavierUniform:   uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010, eq. 16)
//   kHe, kHeOut:      truncated normal of variance 1.3 * 2 / fan_in or fan_out (He et al. 2015, eq.
//                     10); the factor 1.3 compensates for the truncation
struct Initializer {
  enum class Kind : uint8_t {
    kConstant,
    kTruncatedNormal,
    kXavierUniform,
    kHe,
    kHeOut
  } kind = Kind::kConstant;
  double value = 0;
  static Initializer Constant(double v) { return {Kind::kConstant, v}; }
  static Initializer TruncatedNormal(double deviation) {
    return {Kind::kTruncatedNormal, deviation};
  }
  static Initializer XavierUniform() { return {Kind::kXavierUniform, 0}; }
  static Initializer He() { return {Kind::kHe, 0}; }
  static Initializer HeOut() { return {Kind::kHeOut, 0}; }
};

// A weight or a moving statistic. Variables are listed in the order of creation, which is that of
// TensorFlow.
struct Variable {
  std::string name;  // as in TensorFlow: "LeNet/conv1/weights"
  Shape tf_shape;    // TensorFlow's order: filters (R,S,C,K), matrices (C,K)
  Shape shape;       // our order: (K,C,R,S), (K,C); depthwise filters (C*multiplier,1,R,S)
  Initializer initializer;
  bool trainable = true;
  bool l2_regularized = false;
  // Whether the graph computes the L2 loss of this variable. If not, the optimizer adds it.
  bool l2_in_graph = false;
  // Whether it is part of the net, a "model variable" of TF-Slim. These are averaged, and restored
  // by fine-tuning. The ranges of quantization are not.
  bool model_variable = true;
  ValueId value = kNone;
  ValueId gradient = kNone;  // set by Differentiate() for trainable variables

  // The layout that has TensorFlow's order of elements in memory.
  Layout plain_layout() const { return shape.rank() >= 2 ? Layout::Filter() : Layout::RowMajor(); }
};

class Graph {
 public:
  // `compute` is the type of variables and results: kF32, or kF64 to check the gradients in tests.
  explicit Graph(DType compute = DType::kF32) : compute_(compute) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  DType compute() const { return compute_; }

  ValueId AddInput(const std::string& name, const Shape& shape, DType dtype);
  ValueId AddVariable(Variable variable);

  struct OutputShape {
    Shape shape;
    DType dtype;
    bool present = true;
  };
  // Appends an operation and makes new values for its outputs (kNone for those that are not
  // present).
  const Node& AddNode(Node node, const std::vector<OutputShape>& outputs);
  // Appends an operation with one output of type compute() and returns the output.
  ValueId AddResult(Node node, const Shape& shape) {
    return AddNode(std::move(node), {{shape, compute_}}).outputs[0];
  }

  // Adds an output to an existing node. For rewrites.
  ValueId AddOutput(NodeId node, const Shape& shape, DType dtype);

  // Names an intermediate result, as TF-Slim's end points do.
  void AddEndPoint(const std::string& name, ValueId value) {
    end_points_.emplace_back(name, value);
  }
  // Adds a scalar to the losses. The total loss is their sum. Marks the value as output.
  void AddLoss(const std::string& name, ValueId value);
  // Marks a value that callers read after a run. Rewrites keep it, and its memory is not reused.
  void MarkOutput(ValueId value) { outputs_.push_back(value); }

  const Value& value(ValueId id) const { return values_[id]; }
  const Shape& shape(ValueId id) const { return values_[id].shape; }
  int num_values() const { return static_cast<int>(values_.size()); }
  const std::deque<Node>& nodes() const { return nodes_; }
  std::deque<Node>& mutable_nodes() { return nodes_; }
  const std::vector<Variable>& variables() const { return variables_; }
  std::vector<Variable>& mutable_variables() { return variables_; }
  const std::vector<std::pair<std::string, ValueId>>& end_points() const { return end_points_; }
  const std::vector<std::pair<std::string, ValueId>>& losses() const { return losses_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  // The input of this name. FindInput() returns kNone if there is none, input() throws
  // InternalError.
  ValueId FindInput(std::string_view name) const;
  ValueId input(const std::string& name) const;

  // Describes the node's inputs and outputs with their shapes and types; layouts are Any.
  OpSpec Spec(const Node& node) const;

  // Sets the phase of the nodes that are appended from now on, and the name of those that have
  // none.
  void SetPhase(Phase phase) { phase_ = phase; }
  void SetScope(std::string scope) { scope_ = std::move(scope); }
  const std::string& scope() const { return scope_; }

  // For rewrites: change the node that makes `value`, its shape or its type.
  void SetProducer(ValueId value, NodeId producer) { values_[value].producer = producer; }
  void SetShape(ValueId value, const Shape& shape) { values_[value].shape = shape; }
  void SetDType(ValueId value, DType dtype) { values_[value].dtype = dtype; }

 private:
  DType compute_;
  Phase phase_ = Phase::kForward;
  std::string scope_;
  std::vector<Value> values_;
  std::deque<Node> nodes_;
  std::vector<Variable> variables_;
  std::vector<std::pair<std::string, ValueId>> end_points_;
  std::vector<std::pair<std::string, ValueId>> losses_;
  std::vector<ValueId> outputs_;
};

}  // namespace carole
