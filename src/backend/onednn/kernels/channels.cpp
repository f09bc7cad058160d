// Concatenation along channels and slices of channels, between any two layouts that Planes knows.
// Whole planes are copied if the blocks of input and output coincide, else the lanes that two
// blocks share.
#include <algorithm>
#include <cstring>

#include "src/backend/onednn/kernels/planes.h"
#include "src/backend/onednn/vector/vector.h"
#include "src/backend/ops/concat.h"
#include "src/core/divide_up.h"

namespace carole::onednn {
namespace {

template <typename T>
class ChannelCopy : public Kernel {
 public:
  ChannelCopy(const OpSpec& spec, int threads) : threads_(threads) {
    // Takes a blocked layout if any input has one, because the adjacent nodes prefer it too.
    Layout like;
    for (const TensorSpec& t : spec.inputs) {
      input_layouts_.push_back(KnownLayout(t));
      if (like.opaque() == nullptr) like = input_layouts_.back();
      from_.emplace_back(t.shape, input_layouts_.back());
    }
    output_layouts_ = {LayoutLike(spec.outputs[0].shape, like)};
    to_ = Planes(spec.outputs[0].shape, output_layouts_[0]);
    if (const auto* slice = spec.attributes.get_if<SliceAttributes>()) {
      AddSpans(0, slice->begin, 0, to_.channels);
    } else {
      int64_t begin = 0;
      for (size_t i = 0; i < from_.size(); ++i) {
        AddSpans(i, 0, begin, from_[i].channels);
        begin += from_[i].channels;
      }
    }
  }

  void Bind(const KernelMemory& memory) override { memory_ = memory; }

  void Run(const RunContext&) override {
    const int64_t pieces = DivideUp(to_.pixels, kPiece);
    const auto spans = static_cast<int64_t>(spans_.size());
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t u = 0; u < to_.images * spans * pieces; ++u) {
      Copy(spans_[u / pieces % spans], u / pieces / spans, u % pieces * kPiece);
    }
    ClearPadding();
  }

 private:
  static constexpr int64_t kPiece = 1024;  // pixels in a task

  // A range of channels that is contiguous both in one block of an input and in one block of the
  // output.
  struct Span {
    size_t input;
    int64_t from_block, from_lane, to_block, to_lane, lanes;
  };

  void AddSpans(size_t input, int64_t from_begin, int64_t to_begin, int64_t count) {
    const Planes& from = from_[input];
    for (int64_t c = 0; c < count;) {
      const int64_t f = from_begin + c, t = to_begin + c;
      const int64_t lanes =
          std::min({count - c, from.lanes - f % from.lanes, to_.lanes - t % to_.lanes});
      spans_.push_back({.input = input,
                        .from_block = f / from.lanes,
                        .from_lane = f % from.lanes,
                        .to_block = t / to_.lanes,
                        .to_lane = t % to_.lanes,
                        .lanes = lanes});
      c += lanes;
    }
  }

  void Copy(const Span& span, int64_t image, int64_t first_pixel) const {
    const Planes& from = from_[span.input];
    const int64_t pixels = std::min(kPiece, to_.pixels - first_pixel);
    const T* x = memory_.inputs[span.input].template as<T>() + from.Offset(image, span.from_block) +
                 first_pixel * from.lanes + span.from_lane;
    T* y = memory_.outputs[0].as<T>() + to_.Offset(image, span.to_block) + first_pixel * to_.lanes +
           span.to_lane;
    if (span.lanes == from.lanes && span.lanes == to_.lanes) {
      std::memcpy(y, x, sizeof(T) * static_cast<size_t>(pixels * span.lanes));
    } else {
      Vectors<T>().copy_lanes(x, from.lanes, y, {pixels, span.lanes, to_.lanes});
    }
  }

  // Sets the lanes after the output's last channel to 0.
  void ClearPadding() const {
    const int64_t used = to_.channels - (to_.blocks - 1) * to_.lanes;
    if (used == to_.lanes) return;
    for (int64_t image = 0; image < to_.images; ++image) {
      T* plane = memory_.outputs[0].as<T>() + to_.Offset(image, to_.blocks - 1);
      for (int64_t i = 0; i < to_.pixels; ++i)
        std::fill(plane + i * to_.lanes + used, plane + (i + 1) * to_.lanes, T{});
    }
  }

  int threads_;
  std::vector<Planes> from_;
  Planes to_;
  std::vector<Span> spans_;
  KernelMemory memory_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kConcat, .make = MakeTyped<ChannelCopy>},
    {.kind = op::kSlice, .make = MakeTyped<ChannelCopy>},
};

}  // namespace

KernelRows ChannelsKernels() { return kRows; }

}  // namespace carole::onednn
