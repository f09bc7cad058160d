// Copies between layouts and between types (Reorder, Casts).
#include <algorithm>
#include <type_traits>
#include <vector>

#include "src/backend/cuda/kernels/copy.h"
#include "src/backend/cuda/kernels/element.h"
#include "src/backend/cuda/runtime/device_memory.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/backend/ops/copies.h"

namespace carole::cuda {
namespace {

// The nested loops of a copy between two layouts, one for each dimension.
struct Loops {
  static constexpr int kDepth = Shape::kMaxRank;
  struct Loop {
    int64_t size = 1, from = 0, to = 0;
  };
  Loop loops[kDepth];

  Loops(const Shape& shape, const Shape& from, const Shape& to) {
    for (int i = 0; i < shape.rank(); ++i)
      loops[kDepth - shape.rank() + i] = {shape[i], from[i], to[i]};
  }
  // Finds the offsets of element number i in both layouts.
  __device__ void Find(int64_t i, int64_t& from, int64_t& to) const {
    from = to = 0;
    for (int d = kDepth - 1; d >= 0; --d) {
      const int64_t index = i % loops[d].size;
      i /= loops[d].size;
      from += index * loops[d].from;
      to += index * loops[d].to;
    }
  }
};

// Converts an element. If the type does not change, From and To are both the unsigned integer of
// the element's size.
template <typename From, typename To>
__device__ To Cast(From from) {
  if constexpr (std::is_same_v<From, To>) {
    return from;
  } else {
    return static_cast<To>(static_cast<float>(from));
  }
}

template <typename From, typename To>
struct CopyElements {
  Loops loops;
  const From* from;
  To* to;

  __device__ void operator()(int64_t i) const {
    int64_t source, target;
    loops.Find(i, source, target);
    to[target] = Cast<From, To>(from[source]);
  }
};

// The number of elements of 16 bytes in the smaller of two types.
template <typename From, typename To>
inline constexpr int kSharedPack = kPack<From> > kPack<To> ? kPack<From> : kPack<To>;

// Copies packs of N elements between tensors of the same layout.
template <typename From, typename To, int N>
struct CopyPacks {
  static constexpr int kReadsInFlight = 4;
  const From* from;
  To* to;

  __device__ Pack<From, N> Read(int64_t pack) const { return ReadPack<N>(from + pack * N); }
  __device__ void Write(int64_t pack, const Pack<From, N>& read) const {
    const Elements<From, N> source(read);
    Elements<To, N> target;
    for (int i = 0; i < N; ++i) target.values[i] = Cast<From, To>(source.values[i]);
    WritePack(to + pack * N, target.ToPack());
  }
};

template <typename From, typename To>
class Reorder : public CudaKernel {
 public:
  Reorder(const OpSpec& spec, const Device& device)
      : CudaKernel(spec, device),
        loops_(in_shape(0), PlainStrides(in_shape(0), spec.inputs[0].layout),
               PlainStrides(in_shape(0), spec.outputs[0].layout)) {
    input_layouts_ = {spec.inputs[0].layout};
    output_layouts_ = {spec.outputs[0].layout};
  }

  void Run(const RunContext&) override {
    constexpr int N = kSharedPack<From, To>;
    const From* from = in<From>(0);
    To* to = out<To>(0);
    const int64_t count = in_shape(0).size();
    if (spec_.inputs[0].layout == spec_.outputs[0].layout && count % N == 0) {
      ForEach(device_.stream, count / N, CopyPacks<From, To, N>{from, to});
    } else {
      ForEach(device_.stream, count, CopyElements<From, To>{loops_, from, to});
    }
  }

 private:
  Loops loops_;
};

// The elements that one block of threads casts.
struct Piece {
  const void* from;
  void* to;
  int64_t count;
};

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads) CastPiecesKernel(const Piece* pieces) {
  const Piece piece = pieces[blockIdx.x];
  constexpr int N = kSharedPack<From, To>;
  const CopyPacks<From, To, N> copy{static_cast<const From*>(piece.from),
                                    static_cast<To*>(piece.to)};
  const int64_t packs = piece.count / N;
  for (int64_t i = threadIdx.x; i < packs; i += copy.kReadsInFlight * kThreads) {
    ReadAhead<copy.kReadsInFlight>(
        i, packs, kThreads, [&](int64_t j) { return copy.Read(j); },
        [&](int64_t j, const auto& read) { copy.Write(j, read); });
  }
  for (int64_t i = packs * N + threadIdx.x; i < piece.count; i += kThreads)
    copy.to[i] = Cast<From, To>(copy.from[i]);
}

// Casts many tensors in one launch. A launch takes longer than the cast of most of them.
template <typename From, typename To>
class Casts : public CudaKernel {
 public:
  Casts(const OpSpec& spec, const Device& device) : CudaKernel(spec, device) {
    for (size_t i = 0; i < spec.inputs.size(); ++i)
      input_layouts_[i] = output_layouts_[i] = spec.inputs[i].layout;
  }

  void Bind(const KernelMemory& memory) override {
    constexpr int64_t kCount = 4 * kSharedPack<From, To> * kThreads;
    std::vector<Piece> pieces;
    for (size_t i = 0; i < memory.inputs.size(); ++i) {
      const From* from = memory.inputs[i].as<From>();
      To* to = memory.outputs[i].as<To>();
      const int64_t count = in_shape(i).size();
      for (int64_t at = 0; at < count; at += kCount)
        pieces.push_back({from + at, to + at, std::min(kCount, count - at)});
    }
    pieces_ = CopyToDevice(pieces, device_.stream);
    blocks_ = static_cast<unsigned>(pieces.size());
  }

  void Run(const RunContext&) override {
    if (blocks_ == 0) return;
    Launch(device_.stream, dim3(blocks_), CastPiecesKernel<From, To>,
           reinterpret_cast<const Piece*>(pieces_.get()));
  }

 private:
  DeviceMemory pieces_;
  unsigned blocks_ = 0;
};

// Makes the kernel K<From, To> for the types of an operation.
template <template <typename, typename> class K>
std::unique_ptr<Kernel> MakeCast(const OpSpec& spec, const Device& device) {
  const bool widens = spec.outputs[0].dtype == DType::kF32;
  const bool is_bf16 = (widens ? spec.inputs : spec.outputs)[0].dtype == DType::kBF16;
  if (widens && is_bf16) return std::make_unique<K<__nv_bfloat16, float>>(spec, device);
  if (widens) return std::make_unique<K<__half, float>>(spec, device);
  if (is_bf16) return std::make_unique<K<float, __nv_bfloat16>>(spec, device);
  return std::make_unique<K<float, __half>>(spec, device);
}

std::unique_ptr<Kernel> MakeReorder(const OpSpec& spec, const Device& device) {
  if (spec.inputs[0].dtype != spec.outputs[0].dtype) return MakeCast<Reorder>(spec, device);
  switch (SizeOf(spec.inputs[0].dtype)) {
    case 8:
      return std::make_unique<Reorder<uint64_t, uint64_t>>(spec, device);
    case 4:
      return std::make_unique<Reorder<uint32_t, uint32_t>>(spec, device);
    case 2:
      return std::make_unique<Reorder<uint16_t, uint16_t>>(spec, device);
    default:
      return std::make_unique<Reorder<uint8_t, uint8_t>>(spec, device);
  }
}

bool IsPlain(const TensorSpec& t) { return t.layout.is_plain(); }

bool SupportsReorder(const OpSpec& spec, const Device&) {
  const TensorSpec &x = spec.inputs[0], &y = spec.outputs[0];
  return (x.dtype == y.dtype || IsCast(x.dtype, y.dtype)) && IsPlain(x) && IsPlain(y);
}

bool SupportsCasts(const OpSpec& spec, const Device&) {
  if (spec.inputs.size() != spec.outputs.size()) return false;
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const TensorSpec &x = spec.inputs[i], &y = spec.outputs[i];
    if (x.dtype != from || y.dtype != to || x.layout != y.layout || !IsPlain(x)) return false;
  }
  return IsCast(from, to);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kReorder, .make = MakeReorder, .supports = SupportsReorder},
    {.kind = op::kCasts, .make = MakeCast<Casts>, .supports = SupportsCasts},
};

}  // namespace

void CastFilter(CUstream_st* stream, DType from_type, const void* from, const Shape& from_shape,
                float* to, const Shape& to_shape) {
  const int64_t count = to_shape.size();
  WithPacks(from_type, count, [&]<typename T, int N>() {
    const T* source = static_cast<const T*>(from);
    if (from_shape.size() == count)
      return ForEach(stream, count / N, CopyPacks<T, float, N>{source, to});
    const Layout nhwc = Layout::Nhwc();
    const Loops loops(to_shape, PlainStrides(from_shape, nhwc), PlainStrides(to_shape, nhwc));
    ForEach(stream, count, CopyElements<T, float>{loops, source, to});
  });
}

KernelRows ReorderKernels() { return kRows; }

}  // namespace carole::cuda
