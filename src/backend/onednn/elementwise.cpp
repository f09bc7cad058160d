// Element by element, in whatever layout the first tensor has: ReLU and its gradient, sums,
// dropout.
#include <algorithm>
#include <cmath>

#include "src/backend/onednn/onednn.h"
#include "src/backend/onednn/vector.h"
#include "src/core/rng.h"

namespace carole::onednn {
namespace {

// Calls f(begin, count) for pieces of [0, total), in parallel.
template <typename F>
void ForPieces(int64_t total, int threads, F f) {
  constexpr int64_t kPiece = 8192;
  const int64_t pieces = (total + kPiece - 1) / kPiece;
#pragma omp parallel for num_threads(threads) schedule(static) if (pieces > 1)
  for (int64_t p = 0; p < pieces; ++p) f(p * kPiece, std::min(kPiece, total - p * kPiece));
}

class Elementwise : public Kernel {
 public:
  Elementwise(const OpSpec& spec, int threads) : kind_(spec.kind), threads_(threads) {
    if (const auto* relu = std::get_if<ReluAttributes>(&spec.attributes))
      ceiling_ = static_cast<float>(relu->ceiling);
    // A blocked layout, where any tensor has one, spares the others a reorder back to plain.
    Layout layout = Layout::PlainActivation(spec.outputs[0].shape);
    for (const TensorSpec& t : spec.inputs) {
      if (t.layout.opaque() != nullptr) {
        layout = t.layout;
        break;
      }
    }
    input_layouts_.assign(spec.inputs.size(), layout);
    output_layouts_ = {layout};
    count_ =
        static_cast<int64_t>(ByteSize(spec.outputs[0].shape, DType::kF32, layout) / sizeof(float));
  }

  int InPlaceInput(int) const override { return 0; }
  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    float* y = memory_.outputs[0].as<float>();
    auto x = [&](size_t i) { return memory_.inputs[i].as<float>(); };
    ForPieces(count_, threads_, [&](int64_t at, int64_t n) {
      if (kind_ == OpKind::kRelu) {
        Vectors().relu(x(0) + at, y + at, n, ceiling_);
      } else if (kind_ == OpKind::kReluBackward) {
        Vectors().relu_backward(x(0) + at, x(1) + at, y + at, n, ceiling_);
      } else {
        Vectors().add(x(0) + at, x(1) + at, y + at, n);
        for (size_t i = 2; i < memory_.inputs.size(); ++i)
          Vectors().add(y + at, x(i) + at, y + at, n);
      }
    });
  }

 private:
  OpKind kind_;
  int threads_;
  float ceiling_ = 0;
  int64_t count_;
  KernelMemory memory_;
};

// The mask is keyed by the element's place in NHWC order (dropout_mask.h), so the layout is plain.
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
    const Rng rng(context.seed, RngPurpose::kDropout, static_cast<uint64_t>(context.step),
                  static_cast<uint64_t>(attributes_.layer));
    const auto first = static_cast<uint64_t>(context.first_sample * (shape.size() / shape[0]));
    const auto threshold = static_cast<uint32_t>(std::ceil(attributes_.keep * 0x1p24));
    const float* x = memory_.inputs[0].as<float>();
    float* y = memory_.outputs[0].as<float>();
    ForPieces(shape.size(), threads_, [&](int64_t at, int64_t n) {
      Vectors().dropout(x + at, y + at, n,
                        {.key = rng.key(),
                         .stream = rng.stream(),
                         .first = first + static_cast<uint64_t>(at),
                         .threshold = threshold,
                         .scale = static_cast<float>(1.0 / attributes_.keep)});
    });
  }

 private:
  DropoutAttributes attributes_;
  int threads_;
  KernelMemory memory_;
};

}  // namespace

std::unique_ptr<Kernel> MakeElementwise(const OpSpec& spec, int threads) {
  return std::make_unique<Elementwise>(spec, threads);
}

std::unique_ptr<Kernel> MakeDropout(const OpSpec& spec, int threads) {
  return std::make_unique<Dropout>(spec, threads);
}

}  // namespace carole::onednn
