// Element-wise operations: activations and their gradients, sums, dropout. They work in any layout
// that all their tensors have.
#include <algorithm>

#include "src/backend/dropout_mask.h"
#include "src/backend/onednn/kernels/planes.h"
#include "src/backend/onednn/vector/vector.h"
#include "src/core/divide_up.h"

namespace carole::onednn {
namespace {

// Calls f(begin, count) for pieces of [0, total), in parallel.
template <typename F>
void ForPieces(int64_t total, int threads, F f) {
  constexpr int64_t kPiece = 8192;
  const int64_t pieces = DivideUp(total, kPiece);
#pragma omp parallel for num_threads(threads) schedule(static) if (pieces > 1)
  for (int64_t p = 0; p < pieces; ++p) f(p * kPiece, std::min(kPiece, total - p * kPiece));
}

template <typename T>
class Elementwise : public Kernel {
 public:
  Elementwise(const OpSpec& spec, int threads) : kind_(spec.kind), threads_(threads) {
    if (const auto* relu = std::get_if<ReluAttributes>(&spec.attributes))
      constant_ = static_cast<float>(relu->ceiling);
    if (const auto* scale = std::get_if<ScaleAttributes>(&spec.attributes))
      constant_ = static_cast<float>(scale->factor);
    if (const auto* hard = std::get_if<HardActivationAttributes>(&spec.attributes)) {
      constant_ = static_cast<float>(hard->factor());
      swish_ = hard->swish;
    }
    const Layout layout = ChooseLayout(spec);
    input_layouts_.assign(spec.inputs.size(), layout);
    output_layouts_ = {layout};
    count_ = static_cast<int64_t>(ByteSize(spec.outputs[0].shape, spec.outputs[0].dtype, layout) /
                                  sizeof(T));
  }

  int InPlaceInput(int) const override { return 0; }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    T* y = memory_.outputs[0].as<T>();
    auto x = [&](size_t i) { return memory_.inputs[i].as<T>(); };
    ForPieces(count_, threads_, [&](int64_t at, int64_t n) {
      switch (kind_) {
        case OpKind::kRelu:
          return Vectors<T>().relu(x(0) + at, y + at, n, constant_);
        case OpKind::kReluBackward:
          return Vectors<T>().relu_backward(x(0) + at, x(1) + at, y + at, n, constant_);
        case OpKind::kHardActivation:
          return Vectors<T>().hard(x(0) + at, y + at, n, swish_, constant_);
        case OpKind::kHardActivationBackward:
          return Vectors<T>().hard_backward(x(0) + at, x(1) + at, y + at, n, swish_, constant_);
        case OpKind::kScale:
          return Vectors<T>().scale(x(0) + at, y + at, n, constant_);
        case OpKind::kScaledAdd:
          return Vectors<T>().scaled_add(x(0) + at, x(1) + at, y + at, n, constant_);
        default:
          Vectors<T>().add(x(0) + at, x(1) + at, y + at, n);
          for (size_t i = 2; i < memory_.inputs.size(); ++i)
            Vectors<T>().add(y + at, x(i) + at, y + at, n);
      }
    });
  }

 private:
  // Takes the blocked layout if any input has one. The others are then reordered to it, and the
  // result need not be reordered back from plain.
  static Layout ChooseLayout(const OpSpec& spec) {
    const Layout plain = Layout::PlainActivation(spec.outputs[0].shape);
    // The hard sigmoid of 0 is 1/2, but padding channels must stay 0. A plain layout has none. This
    // costs nothing: the gate's activations have one pixel, so they are plain anyway.
    const auto* hard = std::get_if<HardActivationAttributes>(&spec.attributes);
    if (hard && !hard->swish) return plain;
    for (const TensorSpec& t : spec.inputs) {
      if (t.layout.opaque() != nullptr) return t.layout;
    }
    return plain;
  }

  OpKind kind_;
  int threads_;
  float constant_ = 0;  // ceiling or factor
  bool swish_ = false;
  int64_t count_;
  KernelMemory memory_;
};

// The mask depends on the index of each element in NHWC order (dropout_mask.h), so the layout is
// plain.
template <typename T>
class Dropout : public Kernel {
 public:
  Dropout(const OpSpec& spec, int threads)
      : attributes_(spec.attributes_as<DropoutAttributes>()), threads_(threads) {
    input_layouts_ = output_layouts_ = {Layout::PlainActivation(spec.inputs[0].shape)};
  }

  int InPlaceInput(int) const override { return 0; }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext& context) override {
    const Shape& shape = memory_.inputs[0].shape;
    const DropoutMask mask(context, attributes_, shape);
    const T* x = memory_.inputs[0].as<T>();
    T* y = memory_.outputs[0].as<T>();
    ForPieces(shape.size(), threads_, [&](int64_t at, int64_t n) {
      Vectors<T>().dropout(x + at, y + at, n,
                           {.key = mask.rng().key(),
                            .stream = mask.rng().stream(),
                            .first = mask.first_word() + static_cast<uint64_t>(at),
                            .threshold = mask.threshold(),
                            .scale = static_cast<float>(1.0 / mask.keep())});
    });
  }

 private:
  DropoutAttributes attributes_;
  int threads_;
  KernelMemory memory_;
};

// Drop path: drops whole rows of the batch. A row is one contiguous range of memory in every layout
// that KnownLayout() returns.
template <typename T>
class DropPath : public Kernel {
 public:
  DropPath(const OpSpec& spec, int threads)
      : attributes_(spec.attributes_as<DropoutAttributes>()), threads_(threads) {
    input_layouts_ = output_layouts_ = {KnownLayout(spec.inputs[0])};
    const Planes planes(spec.inputs[0].shape, input_layouts_[0]);
    row_ = planes.Offset(1, 0);
  }

  int InPlaceInput(int) const override { return 0; }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext& context) override {
    const Shape& shape = memory_.inputs[0].shape;
    const DropoutMask mask(context, attributes_, shape);
    const float scale = static_cast<float>(1.0 / mask.keep());
    for (int64_t n = 0; n < shape[0]; ++n) {
      const T* x = memory_.inputs[0].as<T>() + n * row_;
      T* y = memory_.outputs[0].as<T>() + n * row_;
      const bool keep = mask.KeepRow(n);
      ForPieces(row_, threads_, [&](int64_t at, int64_t count) {
        if (keep) {
          Vectors<T>().scale(x + at, y + at, count, scale);
        } else {
          std::fill_n(y + at, count, T{});
        }
      });
    }
  }

 private:
  DropoutAttributes attributes_;
  int threads_;
  int64_t row_;  // elements of one row, including padding
  KernelMemory memory_;
};

}  // namespace

std::unique_ptr<Kernel> MakeElementwise(const OpSpec& spec, int threads) {
  return MakeTyped<Elementwise>(spec, threads);
}

std::unique_ptr<Kernel> MakeDropout(const OpSpec& spec, int threads) {
  if (spec.attributes_as<DropoutAttributes>().per_row) return MakeTyped<DropPath>(spec, threads);
  return MakeTyped<Dropout>(spec, threads);
}

}  // namespace carole::onednn
