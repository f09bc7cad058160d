// Convolutions as matrix products. The patch matrix has one row for each pixel of y: the elements
// of x (R,S,C) that this pixel depends on, with zeros for the padding (im2col).
//   forward          y       = patches w
//   backward filter  dw      = patches^T dy
//   backward data    patches = dy w^T; overlapping patches are then added into dx
// The patch matrix is made for one block of rows of y at a time, which fits into kPatchBytes. For a
// pointwise convolution x itself is the patch matrix. Groups are computed one after the other.
#include <algorithm>
#include <vector>

#include "src/backend/conv2d_geometry.h"
#include "src/backend/reference/math/bias.h"
#include "src/backend/reference/math/gemm.h"
#include "src/backend/reference/reference.h"
#include "src/tensor/buffer.h"

namespace carole::reference {
namespace {

constexpr int64_t kPatchBytes = 8 << 20;

// Sets d to 0 where y, the result of a ReLU, is not above 0.
template <typename T>
void MaskByRelu(const T* y, int64_t count, T* d) {
  for (int64_t i = 0; i < count; ++i) {
    if (!(y[i] > 0)) d[i] = 0;
  }
}

// Reads and writes the patch matrix.
template <typename T>
class Patches {
 public:
  explicit Patches(const Conv2dGeometry& g) : g_(g), depth_(g.taps() * g.group_c()) {
    const int64_t row_bytes = std::max<int64_t>(1, g.q * depth_ * static_cast<int64_t>(sizeof(T)));
    block_rows_ = std::clamp<int64_t>(kPatchBytes / row_bytes, 1, std::max<int64_t>(1, g.rows()));
  }

  int64_t depth() const { return depth_; }
  int64_t block_rows() const { return block_rows_; }
  size_t bytes() const {
    return g_.IsPointwise() ? 0 : AlignUp(sizeof(T) * block_rows_ * g_.q * depth_);
  }

  // Returns the patch matrix of rows [begin, end) of y. It is made in `memory`, except for
  // pointwise convolutions, where it is a view of x.
  MatrixView<T> Gather(int threads, const T* x, int64_t group, int64_t begin, int64_t end,
                       T* memory) const {
    const T* from = x + group * g_.group_c();
    if (g_.IsPointwise()) {
      return {from + begin * g_.q * g_.c, (end - begin) * g_.q, depth_, g_.c, 1};
    }
    ForIndices(threads, end - begin,
               [&](int64_t i) { GatherRow(from, begin + i, memory + i * g_.q * depth_); });
    return {memory, (end - begin) * g_.q, depth_, depth_, 1};
  }

  // Adds the patches of rows [begin, end) of y to dx. One thread adds everything to a given row of
  // dx, so that the order of summation is fixed.
  void Scatter(int threads, const T* memory, int64_t group, int64_t begin, int64_t end,
               T* dx) const {
    const int64_t first_image = begin / g_.p, last_image = (end - 1) / g_.p;
    ForIndices(threads, (last_image - first_image + 1) * g_.h, [&](int64_t i) {
      const int64_t image = first_image + i / g_.h;
      T* to = dx + (image * g_.h + i % g_.h) * g_.w * g_.c + group * g_.group_c();
      for (int64_t r = 0; r < g_.r; ++r) {
        const int64_t p = g_.OutputRow(i % g_.h, r);
        const int64_t row = image * g_.p + p;
        if (p < 0 || row < begin || row >= end) continue;
        ScatterRow(memory + (row - begin) * g_.q * depth_, r, to);
      }
    });
  }

 private:
  void GatherRow(const T* x, int64_t row, T* to) const {
    const int64_t channels = g_.group_c();
    for (int64_t q = 0; q < g_.q; ++q) {
      for (int64_t r = 0; r < g_.r; ++r) {
        const int64_t h = g_.InputRow(row % g_.p, r);
        const T* from = x + (row / g_.p * g_.h + h) * g_.w * g_.c;
        for (int64_t s = 0; s < g_.s; ++s, to += channels) {
          const int64_t w = g_.InputColumn(q, s);
          if (h < 0 || h >= g_.h || w < 0 || w >= g_.w) {
            std::fill_n(to, channels, T{0});
          } else {
            std::copy_n(from + w * g_.c, channels, to);
          }
        }
      }
    }
  }

  void ScatterRow(const T* patches, int64_t r, T* dx) const {
    const int64_t channels = g_.group_c();
    for (int64_t q = 0; q < g_.q; ++q) {
      for (int64_t s = 0; s < g_.s; ++s) {
        const int64_t w = g_.InputColumn(q, s);
        if (w < 0 || w >= g_.w) continue;
        const T* from = patches + q * depth_ + (r * g_.s + s) * channels;
        T* to = dx + w * g_.c;
        for (int64_t c = 0; c < channels; ++c) to[c] += from[c];
      }
    }
  }

  Conv2dGeometry g_;
  int64_t depth_;  // columns of the patch matrix
  int64_t block_rows_;
};

// Base class of the three directions. They differ in which inputs and outputs hold x, w and y.
template <typename T>
class Conv2dBase : public ReferenceKernel {
 protected:
  Conv2dBase(const OpSpec& spec, int threads, const Conv2dGeometry& geometry)
      : ReferenceKernel(spec, threads), g_(geometry), patches_(geometry) {}

  // Reserves workspace for products with a matrix B (depth x columns).
  void ReserveWorkspace(int64_t depth, int64_t columns) {
    workspace_bytes_ = patches_.bytes() + MultiplyWorkspace<T>(depth, columns);
  }

  // Calls f(group, begin, end) for every block of rows of y, [begin, end), of every group.
  template <typename F>
  void ForBlocks(const F& f) const {
    for (int64_t group = 0; group < g_.a.groups; ++group) {
      for (int64_t row = 0; row < g_.rows(); row += patches_.block_rows()) {
        f(group, row, std::min(row + patches_.block_rows(), g_.rows()));
      }
    }
  }

  // Views of one group: its columns of the filter (R,S,C,K), and its columns of rows [begin, end)
  // of y.
  MatrixView<T> Filter(const T* w, int64_t group) const {
    return {w + group * g_.group_k(), patches_.depth(), g_.group_k(), g_.k, 1};
  }
  int64_t OutputOffset(int64_t group, int64_t row) const {
    return row * g_.q * g_.k + group * g_.group_k();
  }
  MatrixView<T> Output(const T* y, int64_t group, int64_t begin, int64_t end) const {
    return {y + OutputOffset(group, begin), (end - begin) * g_.q, g_.group_k(), g_.k, 1};
  }

  T* patch_memory() const { return reinterpret_cast<T*>(memory_.workspace); }
  std::byte* gemm_memory() const { return memory_.workspace + patches_.bytes(); }

  Conv2dGeometry g_;
  Patches<T> patches_;
};

template <typename T>
class Conv2d : public Conv2dBase<T> {
 public:
  Conv2d(const OpSpec& spec, int threads)
      : Conv2dBase<T>(spec, threads,
                      {spec.inputs[0].shape, spec.inputs[1].shape, spec.outputs[0].shape,
                       spec.attributes.as<Conv2dAttributes>()}) {
    this->input_layouts_[1] = Layout::Filter();
    this->ReserveWorkspace(this->patches_.depth(), this->g_.group_k());
  }

  void Run(const RunContext&) override {
    const T* x = this->template in<T>(0);
    const T* w = this->template in<T>(1);
    T* y = this->template out<T>(0);
    this->ForBlocks([&](int64_t group, int64_t begin, int64_t end) {
      Multiply(this->threads_,
               this->patches_.Gather(this->threads_, x, group, begin, end, this->patch_memory()),
               this->Filter(w, group), y + this->OutputOffset(group, begin), this->g_.k, false,
               this->gemm_memory());
    });
    AddBiasRelu(this->threads_, y, this->template in<T>(2), this->template in<T>(3),
                this->g_.pixels(), this->g_.k, this->g_.a.relu);
  }
};

template <typename T>
class Conv2dBackwardData : public Conv2dBase<T> {
 public:
  Conv2dBackwardData(const OpSpec& spec, int threads)
      : Conv2dBase<T>(spec, threads,
                      {spec.outputs[0].shape, spec.inputs[1].shape, spec.inputs[0].shape,
                       spec.attributes.as<Conv2dAttributes>()}) {
    this->input_layouts_[1] = Layout::Filter();
    this->ReserveWorkspace(this->g_.group_k(), this->patches_.depth());
  }

  void Run(const RunContext&) override {
    const Conv2dGeometry& g = this->g_;
    const T* dy = this->template in<T>(0);
    const T* w = this->template in<T>(1);
    T* dx = this->template out<T>(0);
    if (!g.IsPointwise()) std::fill_n(dx, this->out_shape(0).size(), T{0});
    this->ForBlocks([&](int64_t group, int64_t begin, int64_t end) {
      T* to = this->patch_memory();
      int64_t stride = this->patches_.depth();
      if (g.IsPointwise()) {
        to = dx + begin * g.q * g.c + group * g.group_c();
        stride = g.c;
      }
      Multiply(this->threads_, this->Output(dy, group, begin, end),
               this->Filter(w, group).Transposed(), to, stride, false, this->gemm_memory());
      if (!g.IsPointwise()) this->patches_.Scatter(this->threads_, to, group, begin, end, dx);
    });
    if (const T* y = this->template in<T>(kPosition<Conv2dBackwardDataInputs>.relu_y))
      MaskByRelu(y, this->out_shape(0).size(), dx);
    if (T* db = this->template out<T>(kPosition<Conv2dBackwardDataOutputs>.db))
      ColumnSums(this->threads_, dx, g.n * g.h * g.w, g.c, db);
  }
};

template <typename T>
class Conv2dBackwardFilter : public Conv2dBase<T> {
 public:
  Conv2dBackwardFilter(const OpSpec& spec, int threads)
      : Conv2dBase<T>(spec, threads,
                      {spec.inputs[0].shape, spec.outputs[0].shape, spec.inputs[1].shape,
                       spec.attributes.as<Conv2dAttributes>()}) {
    this->output_layouts_[0] = Layout::Filter();
    this->ReserveWorkspace(this->patches_.block_rows() * this->g_.q, this->g_.group_k());
  }

  void Run(const RunContext&) override {
    const Conv2dGeometry& g = this->g_;
    const T* x = this->template in<T>(0);
    const T* dy = this->template in<T>(kPosition<FilterGradientInputs>.dy);
    std::vector<T> masked;
    if (const T* y = this->template in<T>(kPosition<FilterGradientInputs>.relu_y)) {
      masked.assign(dy, dy + this->in_shape(kPosition<FilterGradientInputs>.dy).size());
      MaskByRelu(y, this->in_shape(kPosition<FilterGradientInputs>.dy).size(), masked.data());
      dy = masked.data();
    }
    T* dw = this->template out<T>(0);
    this->ForBlocks([&](int64_t group, int64_t begin, int64_t end) {
      Multiply(this->threads_,
               this->patches_.Gather(this->threads_, x, group, begin, end, this->patch_memory())
                   .Transposed(),
               this->Output(dy, group, begin, end), dw + group * g.group_k(), g.k, begin > 0,
               this->gemm_memory());
    });
    if (T* db = this->template out<T>(1)) ColumnSums(this->threads_, dy, g.pixels(), g.k, db);
  }
};

constexpr KernelRow kRows[] = {
    {.kind = op::kConv2d, .make = MakeTyped<Conv2d>},
    {.kind = op::kConv2dBackwardData, .make = MakeTyped<Conv2dBackwardData>},
    {.kind = op::kConv2dBackwardFilter, .make = MakeTyped<Conv2dBackwardFilter>},
};

}  // namespace

KernelRows Conv2dKernels() { return kRows; }

}  // namespace carole::reference
