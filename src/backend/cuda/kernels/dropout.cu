// Dropout and drop path: the same bits as DropoutMask (src/backend/dropout_mask.h), from seed, step
// and first sample in device memory.
#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/core/rng.h"

namespace carole::cuda {
namespace {

struct Mask {
  const RunNumbers* numbers;
  DropoutAttributes a;
  int64_t row;  // elements

  // The place of element i of the local activation among the random words.
  __device__ uint64_t Place(int64_t i) const {
    const int64_t first = numbers->first_sample;
    return static_cast<uint64_t>(a.per_row ? first + i / row : first * row + i);
  }
  // A block of four words.
  __device__ std::array<uint32_t, 4> Words(uint64_t block) const {
    const RngPurpose purpose = a.per_row ? RngPurpose::kDropPath : RngPurpose::kDropout;
    const auto key = PhiloxKey(numbers->seed, purpose, static_cast<uint64_t>(numbers->step));
    return PhiloxBlock(key, static_cast<uint64_t>(a.layer), block);
  }
};

// By constants: else a thread copies all words to memory first.
__device__ uint32_t WordAt(const std::array<uint32_t, 4>& words, uint64_t i) {
  return i == 0 ? words[0] : i == 1 ? words[1] : i == 2 ? words[2] : words[3];
}

template <typename T, int N>
struct Drop {
  const T* x;
  T* y;
  Mask mask;

  __device__ void operator()(int64_t pack) const {
    const double keep = mask.a.KeepAt(mask.numbers->step);
    const auto most = static_cast<uint32_t>(ceil(keep * 0x1p24));
    Floats<N> values = Load<N>(x + pack * N);
    uint64_t block = mask.Place(pack * N) / 4;
    auto words = mask.Words(block);
    for (int i = 0; i < N; ++i) {
      const uint64_t place = mask.Place(pack * N + i);
      if (place / 4 != block) words = mask.Words(block = place / 4);
      const bool kept = (WordAt(words, place % 4) >> 8) < most;
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
    const Mask mask{device_.numbers, spec_.attributes_as<DropoutAttributes>(),
                    in_shape(0).size() / in_shape(0)[0]};
    ForEach(device_.stream, in_shape(0).size() / N, Drop<T, N>{in<T>(0), out<T>(0), mask});
  }
};

}  // namespace

std::unique_ptr<Kernel> MakeDropout(const OpSpec& spec, const Device& device) {
  return MakePacked<Dropout>(spec, device, spec.inputs[0].shape.size());
}

}  // namespace carole::cuda
