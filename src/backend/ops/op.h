// What an operation is, for graphs and backends: its kind, attributes, inputs and outputs.
//
// A kind of operation is an OpSchema, one row of facts. The headers of this folder define them, one
// family in each header. There is no list of all kinds: a new kind needs no change here.
//
// Shapes are listed in this order: activations x (N,C,H,W), y (N,K,P,Q); filters w
// (K,C/groups,R,S); matrices x (N,C), w (K,C). Gradients are called dx, dw, db, dy and have the
// shapes of x, w, b, y.
//
// Activations and their gradients may be stored in bf16 or fp16. Filters are then read in that type
// too, so that both factors of a product are 16 bits wide, and sums are accumulated in fp32.
// Everything else (biases, parameters of batch norm, statistics, gradients of variables, losses)
// stays fp32.
#pragma once

#include <any>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/core/dtype.h"
#include "src/core/shape.h"
#include "src/tensor/tensor.h"

namespace carole {

// What an input or output holds. It decides in which types a backend may store it.
enum class Role : uint8_t {
  kOther,       // fp32, or integers such as labels
  kActivation,  // an activation or the gradient of one
  kFilter       // an input that is multiplied with activations and read in their type
};

// One input or output of a kind of operation. An optional one that is not used is absent: kNone in
// a graph, a TensorSpec with present = false in an OpSpec.
struct Port {
  std::string_view name = {};
  Role role = Role::kOther;
  bool optional = false;
};

// Named members instead of numbers
//
// An operation with several inputs or outputs has a struct template that lists them, such as
//
//   template <typename T>
//   struct ReluBackwardInputs { T dy = Absent<T>(), y = Absent<T>(); };
//
// The functions below turn it into lists and positions, so that no code counts inputs:
//
//   kPosition<ReluBackwardInputs>.y                           1
//   List(ReluBackwardInputs<ValueId>{.dy = a, .y = b})        the vector {a, b}
//   Named<ReluBackwardInputs>(node.inputs).y                  node.inputs[1]

// The value that stands for an absent input or output.
template <typename T>
constexpr T Absent() {
  return {};
}
template <>
constexpr int32_t Absent<int32_t>() {  // ValueId of src/graph
  return -1;
}

// The number of members of a struct template.
template <template <typename> class S>
inline constexpr int kMembers = sizeof(S<char>);

// The position of each member.
template <template <typename> class S>
inline constexpr S<int> kPosition = []<int... i>(std::integer_sequence<int, i...>) {
  return S<int>{i...};
}
(std::make_integer_sequence<int, kMembers<S>>());

// The members in their order.
template <template <typename> class S, typename T>
constexpr std::array<T, kMembers<S>> ToArray(const S<T>& members) {
  constexpr int n = kMembers<S>;
  static_assert(n >= 1 && n <= 10);
  if constexpr (n == 1) {
    const auto& [a] = members;
    return {a};
  } else if constexpr (n == 2) {
    const auto& [a, b] = members;
    return {a, b};
  } else if constexpr (n == 3) {
    const auto& [a, b, c] = members;
    return {a, b, c};
  } else if constexpr (n == 4) {
    const auto& [a, b, c, d] = members;
    return {a, b, c, d};
  } else if constexpr (n == 5) {
    const auto& [a, b, c, d, e] = members;
    return {a, b, c, d, e};
  } else if constexpr (n == 6) {
    const auto& [a, b, c, d, e, f] = members;
    return {a, b, c, d, e, f};
  } else if constexpr (n == 7) {
    const auto& [a, b, c, d, e, f, g] = members;
    return {a, b, c, d, e, f, g};
  } else if constexpr (n == 8) {
    const auto& [a, b, c, d, e, f, g, h] = members;
    return {a, b, c, d, e, f, g, h};
  } else if constexpr (n == 9) {
    const auto& [a, b, c, d, e, f, g, h, i] = members;
    return {a, b, c, d, e, f, g, h, i};
  } else {
    const auto& [a, b, c, d, e, f, g, h, i, j] = members;
    return {a, b, c, d, e, f, g, h, i, j};
  }
}
template <template <typename> class S, typename T>
std::vector<T> List(const S<T>& members) {
  const auto array = ToArray(members);
  return {array.begin(), array.end()};
}

// The elements of a list by name. Elements that are missing at the end of the list are absent.
template <template <typename> class S, typename T>
S<T> Named(const std::vector<T>& list) {
  const auto at = [&](size_t i) { return i < list.size() ? list[i] : Absent<T>(); };
  return [&]<size_t... i>(std::index_sequence<i...>) { return S<T>{at(i)...}; }
  (std::make_index_sequence<kMembers<S>>());
}

// The inputs or outputs of a kind of operation, in order.
class Ports {
 public:
  constexpr Ports(std::initializer_list<Port> ports) {
    for (const Port& port : ports) ports_[size_++] = port;
  }
  template <template <typename> class S>
  constexpr Ports(const S<Port>& ports) {
    for (const Port& port : ToArray(ports)) ports_[size_++] = port;
  }

  constexpr size_t size() const { return size_; }
  constexpr const Port& operator[](size_t i) const { return ports_[i]; }
  // The position of this name, or -1.
  constexpr int Find(std::string_view name) const {
    for (size_t i = 0; i < size_; ++i) {
      if (ports_[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }

 private:
  std::array<Port, 10> ports_ = {};
  size_t size_ = 0;
};

struct OpSpec;
struct TensorSpec;

// A kind of operation.
struct OpSchema {
  std::string_view name;  // unique, for messages and traces
  Ports inputs, outputs;
  // Whether the last input may be repeated; the last output too, if it has the same name.
  bool repeats = false;
  // Returns the floating-point operations of one forward operation. A multiplication and an
  // addition are two. If null, it is one for each element of the first output.
  int64_t (*flops)(const OpSpec& spec) = nullptr;
  // Returns the outputs for these inputs and attributes. `scope` is for messages. Throws
  // InternalError if the shapes do not fit. If null, the only output has the shape of the first
  // input. Operations whose function in src/ops infers the shape itself need none.
  std::vector<TensorSpec> (*infer)(const OpSpec& spec, std::string_view scope) = nullptr;
  // The kind of the backward operation, if it follows from names what it reads and returns: "dy" is
  // the gradient of output y, "dx" that of input x, every other name is an input or output of the
  // forward operation. Attributes are the same. Null: src/ops has a gradient rule, or there is no
  // gradient.
  const OpSchema* backward = nullptr;

  constexpr const Port& input(size_t i) const { return At(inputs, i); }
  constexpr const Port& output(size_t i) const { return At(outputs, i); }

 private:
  static constexpr Port kUnknown = {};
  constexpr const Port& At(const Ports& ports, size_t i) const {
    if (i < ports.size()) return ports[i];
    return repeats ? ports[ports.size() - 1] : kUnknown;
  }
};

// Refers to a kind of operation. Kinds are equal if their names are: libcarole_cuda.so has schemas
// of its own.
class OpKind {
 public:
  constexpr OpKind(const OpSchema& schema) : schema_(&schema) {}
  OpKind(OpSchema&&) = delete;

  constexpr const OpSchema& schema() const { return *schema_; }
  constexpr const OpSchema* operator->() const { return schema_; }
  friend constexpr bool operator==(OpKind a, OpKind b) {
    return a.schema_ == b.schema_ || a->name == b->name;
  }
  friend constexpr bool operator<(OpKind a, OpKind b) { return a->name < b->name; }

 private:
  const OpSchema* schema_;
};

constexpr std::string_view Name(OpKind kind) { return kind->name; }

// Whether input or output number `index` holds an activation or the gradient of an activation.
constexpr bool IsActivationInput(OpKind kind, size_t index) {
  return kind->input(index).role == Role::kActivation;
}
constexpr bool IsActivationOutput(OpKind kind, size_t index) {
  return kind->output(index).role == Role::kActivation;
}
// Whether input number `index` holds a filter that is multiplied with activations.
constexpr bool IsFilterInput(OpKind kind, size_t index) {
  return kind->input(index).role == Role::kFilter;
}

// The attributes of one operation: the struct that the header of its family defines, or nothing.
class OpAttributes {
 public:
  OpAttributes() = default;
  template <typename T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, OpAttributes>)
      // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the line above excludes copies
      OpAttributes(T&& attributes)
      : value_(std::forward<T>(attributes)) {}

  // Throw std::bad_any_cast if these are attributes of another type.
  template <typename T>
  const T& as() const {
    return std::any_cast<const T&>(value_);
  }
  template <typename T>
  T& as() {
    return std::any_cast<T&>(value_);
  }
  // Return nullptr then.
  template <typename T>
  const T* get_if() const {
    return std::any_cast<T>(&value_);
  }
  template <typename T>
  T* get_if() {
    return std::any_cast<T>(&value_);
  }

 private:
  std::any value_;
};

// Describes one input or output of an operation.
struct TensorSpec {
  Shape shape;
  DType dtype = DType::kF32;
  Layout layout;        // Any: the kernel chooses
  bool present = true;  // false: an optional input or output that is not used
};
template <>
inline TensorSpec Absent<TensorSpec>() {
  return {.shape = {}, .dtype = DType::kF32, .layout = {}, .present = false};
}

// Whether optional input or output number i is used. Unused ones at the end of the list may also be
// missing from it.
inline bool IsPresent(const std::vector<TensorSpec>& tensors, size_t i) {
  return i < tensors.size() && tensors[i].present;
}

// One operation with the shapes and layouts of its inputs and outputs.
struct OpSpec {
  OpKind kind;
  OpAttributes attributes = {};
  std::vector<TensorSpec> inputs = {};
  std::vector<TensorSpec> outputs = {};
};

// What schemas consist of.
namespace op {

constexpr Port Activation(std::string_view name) {
  return {.name = name, .role = Role::kActivation};
}
constexpr Port Filter(std::string_view name) { return {.name = name, .role = Role::kFilter}; }
constexpr Port Other(std::string_view name) { return {.name = name}; }
constexpr Port Optional(Port port) {
  port.optional = true;
  return port;
}

}  // namespace op

}  // namespace carole
