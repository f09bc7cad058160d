// Kernels for the usual depthwise convolutions: a small square filter, one stride for both
// directions, no dilation, one output for each channel. A thread computes a strip: kStrip
// neighboring pixels in a row of the result, which share most of their inputs. For pixels outside
// of the image it uses zeros, so that the loads do not wait for each other. Private to
// src/backend/cuda.
#pragma once

#include "src/backend/cuda/convolution/depthwise.h"
#include "src/backend/cuda/runtime/launch.h"

namespace carole::cuda {

inline constexpr int kStrip = 4;  // pixels

// The pixels [first, first + kCount) of a row of `size` pixels. Some of them may lie outside of it.
template <int kCount>
struct PixelRange {
  int first, size, channels;

  __device__ bool Has(int i) const { return first + i >= 0 && first + i < size; }
  // Reads N elements of each pixel; pixels outside of the row give 0. `from` points to the first
  // pixel.
  template <typename T, int N>
  __device__ void Read(const T* from, Pack<T, N> (&packs)[kCount]) const {
    if (first >= 0 && first + kCount <= size) {  // the common case, without a test for each pixel
      for (int i = 0; i < kCount; ++i, from += channels) packs[i] = ReadPack<N>(from);
    } else {
      for (int i = 0; i < kCount; ++i, from += channels)
        packs[i] = Has(i) ? ReadPack<N>(from) : Pack<T, N>{};
    }
  }
};

// The forward pass and the data gradient. Row (or column) x of the result is the sum over taps j of
//   filter[j] * source[(x * kDown + j - before) / kUp]
// where that index is an integer. The forward pass has kDown = stride, kUp = 1. The gradient is
//   dx[x] = sum filter[j] * dy[(x + left - j) / stride]
// which is the same formula with kDown = 1, kUp = stride, before = kSize - 1 - left, and a reversed
// filter. F is ForwardEpilogue or MaskEpilogue.
template <typename T, int N, int kSize, int kDown, int kUp, typename F>
struct Strips {
  // The number of source pixels under a strip.
  static constexpr int kSpan = ((kStrip - 1) * kDown + kSize - 1) / kUp + 1;
  static_assert(kDown == 1 || kUp == 1);

  int channels;
  int source_h, source_w;
  int h, w;  // size of the result
  int before_h, before_w;
  const T *source, *filter;
  int next_tap;  // elements from one tap of the filter to the next
  T* result;
  F epilogue;

  // The first strip of a row begins this many pixels before the row, so that the index of the
  // source column under its first tap is an integer.
  __host__ __device__ int skew() const { return before_w & (kUp - 1); }
  // Strips of a row.
  __host__ __device__ int strips() const { return (w + skew() + kStrip - 1) / kStrip; }

  struct Channels {
    int first;
    Floats<N> bias;
  };
  __device__ Channels Column(int64_t first) const {
    const int channel = static_cast<int>(first);
    return {channel, epilogue.Bias(channel)};
  }
  __device__ void operator()(const Channels& at, int64_t strip) const {
    const ImagePixel position(strip, h, strips());
    const int begin = position.column * kStrip - skew();  // in the result
    const PixelRange<kSpan> under{(begin * kDown - before_w) / kUp, source_w, channels};
    // The first row of taps whose source index is an integer.
    int i = (before_h - position.row * kDown) & (kUp - 1);
    int row = (position.row * kDown + i - before_h) / kUp;
    const T* from = source + (position.image * source_h + row) * source_w * channels + at.first;
    const T* taps = filter + i * kSize * next_tap + at.first;
    Floats<N> sums[kStrip] = {};
    for (; i < kSize; i += kUp) {
      if (row >= 0 && row < source_h) AddRow(from, under, taps, sums);
      ++row;
      from += source_w * channels;
      taps += kUp * kSize * next_tap;
    }
    const PixelRange<kStrip> to{begin, w, channels};
    const int64_t first = (position.image * h + position.row) * w * channels + at.first;
    for (int c = 0; c < kStrip; ++c) {
      if (!to.Has(c)) continue;
      const int64_t element = first + (begin + c) * channels;
      Store<N>(result + element, epilogue(sums[c], at.bias, element));
    }
  }

  // Adds the products of one row of taps.
  __device__ void AddRow(const T* row, const PixelRange<kSpan>& under, const T* taps,
                         Floats<N>* sums) const {
    Pack<T, N> packs[kSpan];
    under.Read(row + under.first * channels, packs);
    Floats<N> weights[kSize];
    for (int j = 0; j < kSize; ++j) weights[j] = Load<N>(taps + j * next_tap);
    for (int j = 0; j < kSpan; ++j) {
      const Floats<N> values = ToFloats(packs[j]);
      for (int c = 0; c < kStrip; ++c) {
        const int tap = j * kUp - c * kDown;  // the tap of pixel c that reads this column
        if (tap >= 0 && tap < kSize) AddProducts(sums[c], values, weights[tap]);
      }
    }
  }
};

// The gradient of the filter, which lies (R,S,C) in memory. For ChannelSums(): a column stands for
// one channel and kRows rows of taps, and has kRows * kSize sums.
template <typename T, int N, int kSize, int kRows, int kStride>
struct FilterStrips {
  static constexpr int kReadsInFlight = 1;  // one strip already has enough reads in flight
  static constexpr int kSpan = (kStrip - 1) * kStride + kSize;  // pixels of x under a strip
  DepthwiseGeometry g;
  int64_t images;
  const T *x, *dy;

  // Strips of a row.
  __host__ __device__ int strips() const { return (g.q + kStrip - 1) / kStrip; }
  __host__ __device__ int64_t Pixels() const { return images * g.p * strips(); }

  struct Element {
    int channel, row;  // the first channel; the first row of taps
  };
  __device__ Element Column(int64_t element) const {
    return {static_cast<int>(element % g.c), static_cast<int>(element / g.c) * kRows};
  }
  __device__ ImagePixel Read(const Element&, int64_t strip) const {
    return ImagePixel(strip, g.p, strips());
  }
  __device__ void Add(const Element& e, int64_t, const ImagePixel& position,
                      Floats<N>* sums) const {
    const int begin = position.column * kStrip;
    const PixelRange<kStrip> above{begin, g.q, g.c};
    Pack<T, N> packs[kStrip];
    above.Read(dy + ((position.image * g.p + position.row) * g.q + begin) * g.c + e.channel, packs);
    Floats<N> gradients[kStrip];
    for (int c = 0; c < kStrip; ++c) gradients[c] = ToFloats(packs[c]);
    const PixelRange<kSpan> under{begin * kStride - g.left, g.w, g.c};
    const int row = position.row * kStride + e.row - g.top;
    const T* from = x + ((position.image * g.h + row) * g.w + under.first) * g.c + e.channel;
    for (int i = 0; i < kRows; ++i, from += g.w * g.c) {
      if (row + i >= 0 && row + i < g.h) AddRow(from, under, gradients, sums + i * kSize);
    }
  }

  // Adds products to the sums of one row of taps.
  __device__ void AddRow(const T* from, const PixelRange<kSpan>& under, const Floats<N>* gradients,
                         Floats<N>* sums) const {
    Pack<T, N> packs[kSpan];
    under.Read(from, packs);
    for (int j = 0; j < kSpan; ++j) {
      const Floats<N> values = ToFloats(packs[j]);
      for (int c = 0; c < kStrip; ++c) {
        const int tap = j - c * kStride;
        if (tap >= 0 && tap < kSize) AddProducts(sums[tap], values, gradients[c]);
      }
    }
  }
};

// Calls f.operator()<kSize, kStride>() if strips support this convolution with packs of N channels.
// Returns whether they do.
template <int N, typename F>
bool WithStrips(const Conv2dGeometry& g, F f) {
  if constexpr (N > 1) {
    const bool usual =
        g.r == g.s && g.a.stride_h == g.a.stride_w && g.a.dilation == 1 && g.k == g.c;
    const auto is = [&](int64_t size, int64_t stride) {
      return usual && g.r == size && g.a.stride_h == stride;
    };
    if (is(3, 1)) return f.template operator()<3, 1>(), true;
    if (is(3, 2)) return f.template operator()<3, 2>(), true;
    if (is(5, 1)) return f.template operator()<5, 1>(), true;
    if (is(5, 2)) return f.template operator()<5, 2>(), true;
  }
  return false;
}

}  // namespace carole::cuda
