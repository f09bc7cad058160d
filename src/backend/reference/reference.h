// What the kernels of the reference backend share.
//
// Every kernel works on plain layouts: activations NHWC (rank 4) or row-major, filters (R,S,C,K) in
// memory. The order of every sum is fixed by the shapes alone, so that results do not depend on the
// number of threads.
#pragma once

#include <memory>

#include "src/backend/plain_kernel.h"
#include "src/core/divide_up.h"

namespace carole::reference {

// Runs f(i) for i in [0, count) on up to `threads` threads. f must not throw. Indices are handed
// out in pieces as threads come for them, since the machine may be busy with other work too.
template <typename F>
void ForIndices(int threads, int64_t count, const F& f) {
  const int64_t piece = count / (8 * threads) + 1;
#pragma omp parallel for schedule(dynamic, piece) num_threads(threads) if (threads > 1 && count > 1)
  for (int64_t i = 0; i < count; ++i) f(i);
}

// As above, with ranges of at most `grain` indices: f(begin, end).
template <typename F>
void ForRanges(int threads, int64_t count, int64_t grain, const F& f) {
  ForIndices(threads, DivideUp(count, grain),
             [&](int64_t i) { f(i * grain, (i + 1) * grain < count ? (i + 1) * grain : count); });
}

inline constexpr int64_t kElementGrain = 1 << 14;  // elements of a task in element-wise loops
inline constexpr int64_t kChannelGrain = 16;       // channels of a task in sums over pixels

// f(i) for the elements i of a tensor, by several threads.
template <typename F>
void ForElements(int threads, int64_t count, const F& f) {
  ForRanges(threads, count, kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

class ReferenceKernel : public PlainKernel {
 public:
  ReferenceKernel(const OpSpec& spec, int threads) : PlainKernel(spec), threads_(threads) {}

 protected:
  const int threads_;
};

// A kernel whose output 0 may lie over input 0, because element i of one needs element i of the
// other only.
class ElementwiseKernel : public ReferenceKernel {
 public:
  using ReferenceKernel::ReferenceKernel;
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }
};

// Makes K<float> or K<double>, whichever the first input asks for.
template <template <typename> class K>
std::unique_ptr<Kernel> MakeTyped(const OpSpec& spec, int threads) {
  if (spec.inputs[0].dtype == DType::kF64) return std::make_unique<K<double>>(spec, threads);
  return std::make_unique<K<float>>(spec, threads);
}

using KernelMaker = std::unique_ptr<Kernel>(const OpSpec& spec, int threads);
KernelMaker MakeConv2d, MakeConv2dBackwardData, MakeConv2dBackwardFilter;
KernelMaker MakeDepthwise, MakeDepthwiseBackwardData, MakeDepthwiseBackwardFilter;
KernelMaker MakeLinear, MakeLinearBackwardData, MakeLinearBackwardFilter;
KernelMaker MakeBatchNorm, MakeBatchNormBackward;
KernelMaker MakeRelu, MakeReluBackward, MakeActivation, MakeActivationBackward;
KernelMaker MakeAdd, MakeScaledAdd, MakeScale, MakeScaleChannels, MakeScaleChannelsBackward;
KernelMaker MakePool2d, MakePool2dBackward;
KernelMaker MakeLrn, MakeLrnBackward;
KernelMaker MakeDropout;  // its own gradient: the same mask and factor
KernelMaker MakeSoftmax, MakeSoftmaxCrossEntropy;
KernelMaker MakeConcat, MakeSlice, MakePad2d, MakeNormalize;
KernelMaker MakeReshape, MakeReorder;

// The 16-bit type among the spec's, or kF32; and the kernel of `maker` for such a spec
// (narrow.cpp).
DType NarrowType(const OpSpec& spec);
std::unique_ptr<Kernel> MakeNarrow(const OpSpec& spec, KernelMaker* maker, int threads);

}  // namespace carole::reference
