// The sizes of a convolution, and which pixels of x and y belong together.
#pragma once

#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/op.h"
#include "src/core/check.h"

namespace carole {

// The constructor checks that the shapes fit together. Throws InternalError if they do not.
struct Conv2dGeometry {
  int64_t n, c, h, w;  // x (N,C,H,W)
  int64_t k, p, q;     // y (N,K,P,Q)
  int64_t r, s;        // filter (K,C/groups,R,S)
  Conv2dAttributes a;

  Conv2dGeometry(const Shape& x, const Shape& filter, const Shape& y, const Conv2dAttributes& a)
      : n(x[0]),
        c(x[1]),
        h(x[2]),
        w(x[3]),
        k(y[1]),
        p(y[2]),
        q(y[3]),
        r(filter[2]),
        s(filter[3]),
        a(a) {
    CAROLE_CHECK(a.groups > 0 && c % a.groups == 0 && k % a.groups == 0,
                 "convolution of {} to {} channels in {} groups", c, k, a.groups);
    CAROLE_CHECK_EQ(filter, (Shape{k, c / a.groups, r, s}), "filter of a convolution of {}",
                    x.ToString());
    const auto window = [&](int64_t taps) { return (taps - 1) * a.dilation + 1; };
    CAROLE_CHECK_EQ(
        y,
        (Shape{n, k, WindowOutput(h, a.padding.top, a.padding.bottom, window(r), a.stride_h),
               WindowOutput(w, a.padding.left, a.padding.right, window(s), a.stride_w)}),
        "output of a convolution of {} by {}", x.ToString(), filter.ToString());
  }

  constexpr bool IsDepthwise() const { return a.groups == c && c > 1; }
  // Whether pixel i of y depends on pixel i of x only.
  constexpr bool IsPointwise() const {
    return r == 1 && s == 1 && a.stride_h == 1 && a.stride_w == 1 && a.padding == Padding{};
  }
  constexpr int64_t group_c() const { return c / a.groups; }
  constexpr int64_t group_k() const { return k / a.groups; }
  constexpr int64_t rows() const { return n * p; }        // rows of pixels in all images of y
  constexpr int64_t pixels() const { return n * p * q; }  // pixels in all images of y
  constexpr int64_t taps() const { return r * s; }        // filter elements for each channel pair

  // The row or column of x that a tap of the filter reads for row or column `out` of y. It may lie
  // outside [0, h) or [0, w), in the padding.
  constexpr int64_t InputRow(int64_t out, int64_t tap) const {
    return out * a.stride_h + tap * a.dilation - a.padding.top;
  }
  constexpr int64_t InputColumn(int64_t out, int64_t tap) const {
    return out * a.stride_w + tap * a.dilation - a.padding.left;
  }
  // The row or column of y that reads row or column `in` of x through this tap, or -1 if none does.
  constexpr int64_t OutputRow(int64_t in, int64_t tap) const {
    return Output(in + a.padding.top - tap * a.dilation, a.stride_h, p);
  }
  constexpr int64_t OutputColumn(int64_t in, int64_t tap) const {
    return Output(in + a.padding.left - tap * a.dilation, a.stride_w, q);
  }

 private:
  static constexpr int64_t Output(int64_t shifted, int64_t stride, int64_t size) {
    const bool reads = shifted >= 0 && shifted % stride == 0 && shifted / stride < size;
    return reads ? shifted / stride : -1;
  }
};

}  // namespace carole
