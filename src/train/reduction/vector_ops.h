// Copies and adds vectors in the memory of a backend or of the host.
#pragma once

#include <algorithm>
#include <type_traits>

#include "collectives/algorithms/reduce.h"
#include "src/backend/arena_math.h"
#include "src/backend/backend.h"

namespace carole::train {

// T is float or double.
template <typename T>
class VectorOps {
 public:
  // Null: the vectors are in host memory. The backend must outlive this.
  explicit VectorOps(const Backend* backend = nullptr)
      : backend_(backend), math_(backend == nullptr ? nullptr : backend->arena_math()) {
    CAROLE_CHECK((math_ == nullptr || std::is_same_v<T, float>), "doubles on a device");
  }

  DeviceMemory Allocate(size_t count) const {
    const size_t bytes = count * sizeof(T);
    return backend_ == nullptr ? AllocateOnHost(bytes) : backend_->Allocate(bytes);
  }
  void Copy(T* to, const T* from, size_t count) const {
    if (math_ == nullptr) {
      std::copy_n(from, count, to);
    } else {
      math_->Copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                  count * sizeof(T));
    }
  }
  // Computes to += from.
  void Add(T* to, const T* from, size_t count) const {
    if constexpr (std::is_same_v<T, float>) {
      if (math_ != nullptr) return math_->Add(to, from, static_cast<int64_t>(count));
    }
    collectives::AddTo(to, from, count);
  }
  // Computes to *= factor.
  void Scale(T* to, T factor, size_t count) const {
    if constexpr (std::is_same_v<T, float>) {
      if (math_ != nullptr) return math_->Scale(to, static_cast<int64_t>(count), factor);
    }
    for (size_t i = 0; i < count; ++i) to[i] *= factor;
  }

 private:
  const Backend* backend_;
  const ArenaMath* math_;
};

}  // namespace carole::train
