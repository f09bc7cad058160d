// The static graph of one step: values with fixed shapes, and the operations between them in an
// order in which they can run. Nets append forward operations (src/ops), autodiff.h appends the
// backward ones, rewrites.h fuses, executable.h plans memory and runs.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "src/backend/op.h"

namespace carole {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNone = -1;  // an absent optional place

class Graph;
struct Node;

// What the gradient rule of an operation is given.
struct GradientArgs {
  Graph& graph;
  const Node& node;
  const std::vector<ValueId>& dy;   // gradient of each output, or kNone where none flows
  const std::vector<bool>& wanted;  // for each input, whether its gradient is of use
};
// Appends the backward operations; returns the gradient of each input, kNone where it is not wanted
// or zero.
using GradientRule = std::vector<ValueId> (*)(const GradientArgs& args);

enum class Phase : uint8_t { kForward, kBackward };

struct Node {
  OpKind kind;
  OpAttributes attributes = {};
  std::vector<ValueId> inputs = {};
  std::vector<ValueId> outputs = {};  // AddNode() fills them in
  std::string name = {};              // scope, for messages, summaries and traces
  GradientRule gradient = nullptr;    // null: no gradient flows through
  Phase phase = Phase::kForward;
  bool dead = false;  // removed by a rewrite
};

struct Value {
  Shape shape;
  DType dtype = DType::kF32;
  NodeId producer = kNone;   // kNone: input or variable
  int32_t variable = kNone;  // index into variables()
  std::string name = {};     // of an input
};

// Distribution of a variable's first value. Fans are those of tf.variance_scaling_initializer.
//   kXavierUniform: within sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010, eq. 16)
//   kHe, kHeOut:    normal of variance 1.3 * 2 / fan_in or fan_out (He et al. 2015, eq. 10), drawn
//                   again beyond 2 deviations, which the 1.3 makes up for
//   kTruncatedNormal: cut alike
struct Initializer {
  enum class Kind : uint8_t {
    kConstant,
    kTruncatedNormal,
    kXavierUniform,
    kHe,
    kHeOut
  } kind = Kind::kConstant;
  double value = 0;  // kConstant: the value; kTruncatedNormal: the deviation
  static Initializer Constant(double v) { return {Kind::kConstant, v}; }
  static Initializer TruncatedNormal(double deviation) {
    return {Kind::kTruncatedNormal, deviation};
  }
  static Initializer XavierUniform() { return {Kind::kXavierUniform, 0}; }
  static Initializer He() { return {Kind::kHe, 0}; }
  static Initializer HeOut() { return {Kind::kHeOut, 0}; }
};

// A weight or a moving statistic. Listed in the order of creation, which is TensorFlow's.
struct Variable {
  std::string name;  // TensorFlow's, "LeNet/conv1/weights"
  Shape tf_shape;    // as TensorFlow lists it: filters (R,S,C,K), matrices (C,K)
  Shape shape;       // as ours: (K,C,R,S), (K,C); depthwise (C*multiplier,1,R,S)
  Initializer initializer;
  bool trainable = true;
  bool l2_regularized = false;
  ValueId value = kNone;
  ValueId gradient = kNone;  // set by Differentiate() for trainable ones

  // TensorFlow's element order in memory.
  Layout plain_layout() const { return shape.rank() >= 2 ? Layout::Filter() : Layout::RowMajor(); }
};

class Graph {
 public:
  // compute is kF32, or kF64 for the oracle.
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
  // Appends an operation; its outputs get fresh values (kNone where absent).
  const Node& AddNode(Node node, const std::vector<OutputShape>& outputs);
  // One with a single result, of compute()'s type.
  ValueId AddResult(Node node, const Shape& shape) {
    return AddNode(std::move(node), {{shape, compute_}}).outputs[0];
  }

  // One more output of a node (rewrites).
  ValueId AddOutput(NodeId node, const Shape& shape, DType dtype);

  // A named intermediate result, as TF-Slim's end points.
  void AddEndPoint(const std::string& name, ValueId value) {
    end_points_.emplace_back(name, value);
  }
  // Part of the loss; the total is their sum.
  void AddLoss(const std::string& name, ValueId value);
  // Values that a caller reads after a run: never fused away, never overwritten.
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
  ValueId input(const std::string& name) const;  // InternalError when there is none

  // The node's inputs and outputs with shapes and dtypes, layouts Any.
  OpSpec Spec(const Node& node) const;

  // Nodes appended from now on carry this phase and name prefix.
  void SetPhase(Phase phase) { phase_ = phase; }
  void SetScope(std::string scope) { scope_ = std::move(scope); }
  const std::string& scope() const { return scope_; }

  // Makes `value` the output of another node (rewrites).
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
