// Dropout of elements and of rows.
#include <algorithm>

#include "src/backend/dropout_mask.h"
#include "src/backend/onednn/kernels/elementwise.h"
#include "src/backend/onednn/kernels/planes.h"
#include "src/backend/onednn/vector/vector.h"

namespace carole::onednn {
namespace {

// The mask depends on the index of each element in NHWC order (dropout_mask.h), so the layout is
// plain.
template <typename T>
class Dropout : public Kernel {
 public:
  Dropout(const OpSpec& spec, int threads)
      : attributes_(spec.attributes.as<DropoutAttributes>()), threads_(threads) {
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
      : attributes_(spec.attributes.as<DropoutAttributes>()), threads_(threads) {
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

std::unique_ptr<Kernel> MakeDropout(const OpSpec& spec, const Cpu& cpu) {
  if (spec.attributes.as<DropoutAttributes>().per_row) return MakeTyped<DropPath>(spec, cpu);
  return MakeTyped<Dropout>(spec, cpu);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kDropout, .make = MakeDropout},
    {.kind = op::kDropoutBackward, .make = MakeDropout},
};

}  // namespace

KernelRows DropoutKernels() { return kRows; }

}  // namespace carole::onednn
