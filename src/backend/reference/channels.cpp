// Concatenation along channels and its gradient, a slice of the channels. In NHWC the channels of a
// pixel are adjacent.
#include <algorithm>

#include "src/backend/ops/concat.h"
#include "src/backend/reference/reference.h"

namespace carole::reference {
namespace {

// Copies `count` channels of every pixel, from channel `from_begin` of x to `to_begin` of y.
template <typename T>
void CopyChannels(int threads, const T* x, const Shape& x_shape, int64_t from_begin, T* y,
                  const Shape& y_shape, int64_t to_begin, int64_t count) {
  const int64_t from_stride = x_shape[1], to_stride = y_shape[1];
  ForIndices(threads, x_shape.size() / from_stride, [&](int64_t pixel) {
    std::copy_n(x + pixel * from_stride + from_begin, count, y + pixel * to_stride + to_begin);
  });
}

template <typename T>
class Concat : public ReferenceKernel {
 public:
  Concat(const OpSpec& spec, int threads) : ReferenceKernel(spec, threads) {
    int64_t channels = 0;
    for (const TensorSpec& t : spec.inputs) channels += t.shape[1];
    CAROLE_CHECK_EQ(channels, out_shape(0)[1], "channels of a concatenation");
  }

  void Run(const RunContext&) override {
    int64_t begin = 0;
    for (size_t i = 0; i < spec_.inputs.size(); ++i) {
      const int64_t count = in_shape(i)[1];
      CopyChannels(threads_, in<T>(i), in_shape(i), 0, out<T>(0), out_shape(0), begin, count);
      begin += count;
    }
  }
};

template <typename T>
class Slice : public ReferenceKernel {
 public:
  Slice(const OpSpec& spec, int threads)
      : ReferenceKernel(spec, threads), begin_(spec.attributes.as<SliceAttributes>().begin) {
    CAROLE_CHECK(begin_ >= 0 && begin_ + out_shape(0)[1] <= in_shape(0)[1],
                 "a slice of {} channels at {} of {}", out_shape(0)[1], begin_,
                 in_shape(0).ToString());
  }

  void Run(const RunContext&) override {
    CopyChannels(threads_, in<T>(0), in_shape(0), begin_, out<T>(0), out_shape(0), 0,
                 out_shape(0)[1]);
  }

 private:
  const int64_t begin_;
};

constexpr KernelRow kRows[] = {
    {.kind = op::kConcat, .make = MakeTyped<Concat>},
    {.kind = op::kSlice, .make = MakeTyped<Slice>},
};

}  // namespace

KernelRows ChannelsKernels() { return kRows; }

}  // namespace carole::reference
