// Element-wise operations of one or two inputs. Private to src/backend/cuda.
#pragma once

#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"

namespace carole::cuda {

// y[i] = f(a[i], b[i]). A function of one operand gets it twice.
template <typename T, int N, typename F>
struct Map {
  static constexpr int kReadsInFlight = 4;
  const T *a, *b;
  T* y;
  F f;

  struct Packs {
    Pack<T, N> a, b;
  };
  __device__ Packs Read(int64_t pack) const {
    Packs packs{ReadPack<N>(a + pack * N), {}};
    packs.b = b == a ? packs.a : ReadPack<N>(b + pack * N);
    return packs;
  }
  __device__ void Write(int64_t pack, const Packs& read) const {
    Floats<N> left = ToFloats(read.a);
    const Floats<N> right = ToFloats(read.b);
    for (int i = 0; i < N; ++i) left[i] = f(left[i], right[i]);
    Store<N>(y + pack * N, left);
  }
};

template <typename T, int N, typename F>
class Elementwise : public CudaKernel {
 public:
  Elementwise(const OpSpec& spec, const Device& device, F f) : CudaKernel(spec, device), f_(f) {}
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }

  void Run(const RunContext&) override {
    const T* a = in<T>(0);
    const T* b = spec_.inputs.size() > 1 ? in<T>(1) : a;
    ForEach(device_.stream, in_shape(0).size() / N, Map<T, N, F>{a, b, out<T>(0), f_});
  }

 private:
  const F f_;
};

// Makes the kernel for an operation. f(a, b) computes one element in fp32 from those of its inputs;
// if there is only one, b is a.
template <typename F>
std::unique_ptr<Kernel> MakeMap(const OpSpec& spec, const Device& device, F f) {
  return WithPacks(ElementType(spec), spec.inputs[0].shape.size(),
                   [&]<typename T, int N>() -> std::unique_ptr<Kernel> {
                     return std::make_unique<Elementwise<T, N, F>>(spec, device, f);
                   });
}

}  // namespace carole::cuda
