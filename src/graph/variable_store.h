// The weights, gradients and moving statistics of a net, each in one flat arena.
//
// Trainable variables lie in the order in which their gradients become final, so that a run of
// neighbors is a bucket of the all-reduce; weights, gradients and optimizer slots use the same
// offsets. A variable lies in the layout that its kernel wants (padding included, always zero);
// Read() and Write() speak TensorFlow's order. The arenas are memory of the backend: the host may
// touch them only where that is on_host().
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/graph/graph.h"

namespace carole {

// Where one variable lies. Offsets and counts are in elements of the store's dtype.
struct VariableSlice {
  std::string name;
  Shape tf_shape;
  Shape shape;
  Layout layout;
  Layout plain_layout;
  Initializer initializer;
  bool trainable = true;
  bool l2_regularized = false;
  int64_t offset = 0;  // into weights and gradients, or into statistics when not trainable
  int64_t count = 0;   // padding of the layout and up to the next cache line included
};

class VariableStore {
 public:
  // Memory for the gradients is asked from `allocate` (a collective arena, say); the default is the
  // backend's, or none where no variable has a gradient. The returned memory is zeroed, aligned to
  // Buffer::kAlignment, and stays the caller's.
  using Allocate = std::function<std::byte*(size_t bytes)>;

  // `places` in creation order, offsets not yet set; `ready_order` lists the trainable ones
  // (indexes into places) in the order in which gradients become final.
  VariableStore(const Backend& backend, DType dtype, std::vector<VariableSlice> places,
                std::vector<int> ready_order, const Allocate& allocate_gradients = {});

  const Backend& backend() const { return backend_; }
  const std::vector<VariableSlice>& places() const { return places_; }
  const std::vector<int>& ready_order() const { return ready_order_; }
  int Find(std::string_view name) const;  // index into places, or -1
  DType dtype() const { return dtype_; }

  // The arenas. T must match dtype().
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

  Tensor Weight(int variable) const;    // weight or statistic, in its own layout
  Tensor Gradient(int variable) const;  // trainable variables only

  // Values in TensorFlow's element order; sizes must be tf_shape.size(). Throws DataError
  // otherwise.
  void Read(int variable, std::span<float> out) const;
  void Write(int variable, std::span<const float> in);
  // The same for any arena of the weights' form (gradients, optimizer slots), given its base.
  template <typename T>
  void ReadFrom(const std::byte* arena, int variable, std::span<T> out) const;
  template <typename T>
  void WriteTo(std::byte* arena, int variable, std::span<const T> in) const;
  std::byte* weights_base() const { return weights_.get(); }
  std::byte* gradients_base() const { return gradients_; }
  std::byte* statistics_base() const { return statistics_.get(); }
  std::byte* base_of(int variable) const {
    return places_[variable].trainable ? weights_base() : statistics_base();
  }

  // First values by each variable's initializer, keyed by (seed, variable): the same on every rank
  // and layout.
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
  std::vector<VariableSlice> places_;
  std::vector<int> ready_order_;
  int64_t trainable_count_ = 0;
  int64_t statistics_count_ = 0;
  DeviceMemory weights_;
  DeviceMemory own_gradients_;
  std::byte* gradients_ = nullptr;
  DeviceMemory statistics_;
};

}  // namespace carole
