// Base classes of the reference backend's kernels. The reference backend consists of
// plain loops. It is the oracle for the tests of all other backends, and it trains on CPUs without
// AVX2.
//
// Every kernel works on plain layouts: activations of rank 4 are NHWC, filters (R,S,C,K) in memory,
// everything else row-major. The order of every sum depends on the shapes only, so results do not
// depend on the number of threads.
//
// To add an operation: write <op>.cpp with a kernel class, and end it with its rows of the table
// (src/backend/kernel_table.h).
#pragma once

#include <memory>
#include <type_traits>

#include "src/backend/kernel_table.h"
#include "src/backend/plain_kernel.h"
#include "src/backend/reference/math/loops.h"

namespace carole::reference {

// Base class of the reference kernels.
class ReferenceKernel : public PlainKernel {
 public:
  ReferenceKernel(const OpSpec& spec, int threads) : PlainKernel(spec), threads_(threads) {}

 protected:
  const int threads_;
};

// A kernel whose output 0 may overwrite input 0, because element i of the output depends on element
// i of that input only.
class ElementwiseKernel : public ReferenceKernel {
 public:
  using ReferenceKernel::ReferenceKernel;
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }
};

// y[i] = F(x0[i]) or F(x0[i], x1[i]) for output y and inputs x0 and x1. F computes in double.
template <typename T, auto F>
class MapKernel : public ElementwiseKernel {
 public:
  using ElementwiseKernel::ElementwiseKernel;

  void Run(const RunContext&) override {
    constexpr bool kHasTwoInputs = std::is_invocable_v<decltype(F), double, double>;
    const T *x0 = in<T>(0), *x1 = kHasTwoInputs ? in<T>(1) : nullptr;
    T* y = out<T>(0);
    ForElements(threads_, in_shape(0).size(), [&](int64_t i) {
      if constexpr (kHasTwoInputs) {
        y[i] = static_cast<T>(F(x0[i], x1[i]));
      } else {
        y[i] = static_cast<T>(F(x0[i]));
      }
    });
  }
};

// Makes a K<double> if the first input is fp64, else a K<float>.
template <template <typename> class K>
std::unique_ptr<Kernel> MakeTyped(const OpSpec& spec, int threads) {
  if (spec.inputs[0].dtype == DType::kF64) return std::make_unique<K<double>>(spec, threads);
  return std::make_unique<K<float>>(spec, threads);
}

// Makes a MapKernel of F for the type of the first input.
template <auto F>
std::unique_ptr<Kernel> MakeMap(const OpSpec& spec, int threads) {
  if (spec.inputs[0].dtype == DType::kF64)
    return std::make_unique<MapKernel<double, F>>(spec, threads);
  return std::make_unique<MapKernel<float, F>>(spec, threads);
}

using KernelRow = KernelRowFor<int>;  // the context is the number of threads
using KernelRows = KernelRowsFor<int>;
std::span<KernelRows (*const)()> KernelFiles();

// Whether the kernels work on the types of this operation: all but bytes and integers.
bool SupportsTypes(const OpSpec& spec, int threads);

// The 16-bit type that the spec contains, or kF32 if there is none.
DType NarrowType(const OpSpec& spec);
// Makes a kernel for a spec with a 16-bit type from the fp32 kernel of `row` (narrow.cpp).
std::unique_ptr<Kernel> MakeNarrow(const OpSpec& spec, const KernelRow& row, int threads);

}  // namespace carole::reference
