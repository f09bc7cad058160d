// Copies and adds vectors in the memory of a backend or of the host.
#pragma once

#include <functional>
#include <type_traits>

#include "src/backend/arena_math.h"
#include "src/backend/backend.h"
#include "src/backend/host/arena_math.h"

namespace carole::train {

// T is float or double.
template <typename T>
class VectorOps {
 public:
  // The vectors are in host memory.
  VectorOps() : math_(&host::SerialArenaMath()), allocate_(AllocateOnHost) {}
  // The vectors are in the memory of the backend, which must outlive this.
  explicit VectorOps(const Backend& backend)
      : math_(&backend.arena_math()),
        allocate_([&backend](size_t bytes) { return backend.Allocate(bytes); }) {}

  DeviceMemory Allocate(size_t count) const { return allocate_(count * sizeof(T)); }
  void Copy(T* to, const T* from, size_t count) const {
    math_->Copy(Bytes(to), Bytes(from), count * sizeof(T));
  }
  // Computes to += from.
  void Add(T* to, const T* from, size_t count) const {
    math_->Add(kType, Bytes(to), Bytes(from), static_cast<int64_t>(count));
  }
  // Computes to *= factor.
  void Scale(T* to, T factor, size_t count) const {
    math_->Scale(kType, Bytes(to), static_cast<int64_t>(count), factor);
  }

 private:
  static constexpr DType kType = std::is_same_v<T, double> ? DType::kF64 : DType::kF32;

  static std::byte* Bytes(T* values) { return reinterpret_cast<std::byte*>(values); }
  static const std::byte* Bytes(const T* values) {
    return reinterpret_cast<const std::byte*>(values);
  }

  const ArenaMath* math_;
  std::function<DeviceMemory(size_t bytes)> allocate_;
};

}  // namespace carole::train
