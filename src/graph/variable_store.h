// The weights, gradients and moving statistics of a net, each in one flat arena.
//
// Trainable variables are stored in the order in which their gradients become final, so a bucket of
// the all-reduce is a contiguous range. Weights, gradients and optimizer slots use the same
// offsets.
//
// Statistics that are no model variables come after those that are.
//
// Each variable is stored in the layout that its kernels chose. That may include padding, which is
// always 0. Read() and Write() convert from and to TensorFlow's order of elements. The arenas are
// device memory: the host accesses them through HostView (src/backend/host_view.h).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/graph/graph.h"

namespace carole {

// One variable and its range in the arenas. Offset and count are in elements of the store's dtype.
struct VariableSlice {
  std::string name;
  Shape tf_shape;
  Shape shape;
  Layout layout;
  Layout plain_layout;
  Initializer initializer;
  bool trainable = true;
  bool l2_regularized = false;
  bool l2_in_graph = false;
  bool model_variable = true;
  int64_t offset = 0;  // into weights and gradients; into statistics if not trainable
  int64_t count = 0;   // includes the layout's padding, and padding up to the next cache line
};

class VariableStore {
 public:
  // A function that provides the memory for the gradients, for example from a communicator. The
  // memory must be zeroed, aligned to Buffer::kAlignment and outlive the store; the caller owns it.
  using Allocate = std::function<std::byte*(size_t bytes)>;

  // Allocates zeroed arenas. `variables` are in the order of creation; this sets their offsets and
  // counts. `ready_order` lists the trainable variables that have a gradient (as indices into
  // `variables`) in the order in which their gradients become final. Without `allocate_gradients`,
  // the backend's memory is used, or none if no variable has a gradient.
  VariableStore(const Backend& backend, DType dtype, std::vector<VariableSlice> variables,
                std::vector<int> ready_order, const Allocate& allocate_gradients = {});

  const Backend& backend() const { return backend_; }
  const std::vector<VariableSlice>& variables() const { return variables_; }
  const std::vector<int>& ready_order() const { return ready_order_; }
  int Find(std::string_view name) const;  // index into variables(), or -1
  DType dtype() const { return dtype_; }

  // The arenas, in device memory. T must match dtype().
  template <typename T>
  std::span<T> weights() const {
    return Span<T>(weights_.get(), trainable_count_);
  }
  template <typename T>
  std::span<T> gradients() const {
    return Span<T>(gradients_, gradients_ == nullptr ? 0 : trainable_count_);
  }
  template <typename T>
  std::span<T> statistics() const {
    return Span<T>(statistics_.get(), statistics_count_);
  }
  int64_t trainable_count() const { return trainable_count_; }
  size_t weights_bytes() const { return Bytes(trainable_count_); }
  size_t statistics_bytes() const { return Bytes(statistics_count_); }
  // The first part of the statistics: those that are model variables.
  size_t model_statistics_bytes() const { return Bytes(model_statistics_count_); }

  // Views of a weight or statistic, and of a trainable variable's gradient, in the variable's
  // layout.
  Tensor Weight(int variable) const;
  Tensor Gradient(int variable) const;

  // Read and write a variable's values in TensorFlow's order of elements. The spans have
  // tf_shape.size() elements. Write() throws DataError if the size is wrong.
  void Read(int variable, std::span<float> out) const;
  void Write(int variable, std::span<const float> in);
  // The same for any arena with the offsets of the weights (gradients, optimizer slots), or with
  // those of the statistics. `arena` is its first byte.
  template <typename T>
  void ReadFrom(const std::byte* arena, int variable, std::span<T> out) const;
  template <typename T>
  void WriteTo(std::byte* arena, int variable, std::span<const T> in) const;
  std::byte* weights_base() const { return weights_.get(); }
  std::byte* gradients_base() const { return gradients_; }
  std::byte* statistics_base() const { return statistics_.get(); }
  // The base of the arena that holds the variable.
  std::byte* base_of(int variable) const {
    return variables_[variable].trainable ? weights_base() : statistics_base();
  }

  // Sets the initial values by each variable's initializer. The random numbers depend on the seed
  // and the variable's name, so the values are the same on every rank and in every layout.
  void Initialize(uint64_t seed);

 private:
  template <typename T>
  std::span<T> Span(std::byte* base, int64_t count) const {
    CAROLE_CHECK_EQ(sizeof(T), SizeOf(dtype_), "arena of {} read as another type", Name(dtype_));
    return {reinterpret_cast<T*>(base), static_cast<size_t>(count)};
  }
  size_t Bytes(int64_t count) const { return static_cast<size_t>(count) * SizeOf(dtype_); }
  Tensor At(std::byte* arena, int variable) const;

  const Backend& backend_;
  DType dtype_;
  std::vector<VariableSlice> variables_;
  std::vector<int> ready_order_;
  int64_t trainable_count_ = 0;
  int64_t statistics_count_ = 0;
  int64_t model_statistics_count_ = 0;
  DeviceMemory weights_;
  DeviceMemory own_gradients_;
  std::byte* gradients_ = nullptr;
  DeviceMemory statistics_;
};

}  // namespace carole
