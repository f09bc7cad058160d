// Dropout and drop path. The mask has the same bits as DropoutMask (src/backend/dropout_mask.h). It
// is a function of the seed, the step and the first sample, which lie in device memory.
#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/ops/dropout.h"
#include "src/core/rng.h"

namespace carole::cuda {
namespace {

struct Mask {
  const DeviceRunContext* run_context;
  DropoutAttributes a;
  int64_t row;  // elements of a row

  // Returns the index of the random word for element i of the local activation.
  __device__ uint64_t WordIndex(int64_t i) const {
    const int64_t first = run_context->first_sample;
    return static_cast<uint64_t>(a.per_row ? first + i / row : first * row + i);
  }
  // Returns a block of four random words.
  __device__ std::array<uint32_t, 4> Words(uint64_t block) const {
    const RngPurpose purpose = a.per_row ? RngPurpose::kDropPath : RngPurpose::kDropout;
    const auto key =
        PhiloxKey(run_context->seed, purpose, static_cast<uint64_t>(run_context->step));
    return PhiloxBlock(key, static_cast<uint64_t>(a.layer), block);
  }
};

// Indexes with constants: with a variable index, a thread would first copy all words to memory.
__device__ uint32_t WordAt(const std::array<uint32_t, 4>& words, uint64_t i) {
  return i == 0 ? words[0] : i == 1 ? words[1] : i == 2 ? words[2] : words[3];
}

template <typename T, int N>
struct Drop {
  const T* x;
  T* y;
  Mask mask;

  __device__ void operator()(int64_t pack) const {
    const double keep = mask.a.KeepAt(mask.run_context->step);
    const auto threshold = static_cast<uint32_t>(ceil(keep * 0x1p24));
    Floats<N> values = Load<N>(x + pack * N);
    uint64_t block = mask.WordIndex(pack * N) / 4;
    auto words = mask.Words(block);
    for (int i = 0; i < N; ++i) {
      const uint64_t index = mask.WordIndex(pack * N + i);
      if (index / 4 != block) words = mask.Words(block = index / 4);
      const bool kept = (WordAt(words, index % 4) >> 8) < threshold;
      values[i] = kept ? values[i] / static_cast<float>(keep) : 0;
    }
    Store<N>(y + pack * N, values);
  }
};

template <typename T, int N>
class Dropout : public CudaKernel {
 public:
  using CudaKernel::CudaKernel;
  int InPlaceInput(int output) const override { return output == 0 ? 0 : -1; }

  void Run(const RunContext&) override {
    const Mask mask{device_.run_context, spec_.attributes.as<DropoutAttributes>(),
                    in_shape(0).size() / in_shape(0)[0]};
    ForEach(device_.stream, in_shape(0).size() / N, Drop<T, N>{in<T>(0), out<T>(0), mask});
  }
};

std::unique_ptr<Kernel> MakeDropout(const OpSpec& spec, const Device& device) {
  return MakePacked<Dropout>(spec, device, spec.inputs[0].shape.size());
}

constexpr KernelRow kRows[] = {
    {.kind = op::kDropout, .make = MakeDropout},
    {.kind = op::kDropoutBackward, .make = MakeDropout},
};

}  // namespace

KernelRows DropoutKernels() { return kRows; }

}  // namespace carole::cuda
