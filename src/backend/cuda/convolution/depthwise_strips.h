// Depthwise convolutions of the usual kind: a small square filter, one stride for both directions,
// no dilation, one output for each channel. A thread makes strips, neighbors in a row of the
// result, which have most of what they read in common. Where there is no pixel it reads zeros: so
// the loads do not wait for each other. Private to the folder.
#pragma once

#include "src/backend/cuda/convolution/depthwise.h"
#include "src/backend/cuda/runtime/launch.h"

namespace carole::cuda {

inline constexpr int kStrip = 4;  // pixels

// The pixels [first, first + kCount) of a row of `size`, of which some may not exist.
template <int kCount>
struct Places {
  int first, size, channels;

  __device__ bool Has(int i) const { return first + i >= 0 && first + i < size; }
  // N elements of each, 0 where it does not exist. `from`: of the first one.
  template <typename T, int N>
  __device__ void Read(const T* from, Pack<T, N> (&packs)[kCount]) const {
    if (first >= 0 && first + kCount <= size) {  // mostly: nothing to ask of each
      for (int i = 0; i < kCount; ++i, from += channels) packs[i] = ReadPack<N>(from);
    } else {
      for (int i = 0; i < kCount; ++i, from += channels)
        packs[i] = Has(i) ? ReadPack<N>(from) : Pack<T, N>{};
    }
  }
};

// The forward pass and the data gradient. Row (column) x of the result adds up, over the taps j,
//   filter[j] * source[(x * kDown + j - before) / kUp]
// where that is a whole number. The forward pass has kDown = stride, kUp = 1. The gradient has
//   dx[x] = sum filter[j] * dy[(x + left - j) / stride]
// which is the same with kDown = 1, kUp = stride, before = kSize - 1 - left, and the filter
// backwards. The first has Finish, the second Masked.
template <typename T, int N, int kSize, int kDown, int kUp, typename F>
struct Strips {
  static constexpr int kSpan = ((kStrip - 1) * kDown + kSize - 1) / kUp + 1;  // under a strip
  static_assert(kDown == 1 || kUp == 1);

  int channels;
  int source_h, source_w;
  int h, w;  // of the result
  int before_h, before_w;
  const T *source, *filter;
  int next_tap;  // elements from one tap of the filter to the next
  T* result;
  F finish;

  // Pixels by which the strips of a row begin before it, so that what lies under the first tap of
  // the first pixel is a whole column of the source.
  __host__ __device__ int skew() const { return before_w & (kUp - 1); }
  __host__ __device__ int strips() const { return (w + skew() + kStrip - 1) / kStrip; }  // of a row

  struct Channels {
    int first;
    Floats<N> bias;
  };
  __device__ Channels Column(int64_t first) const {
    const int channel = static_cast<int>(first);
    return {channel, finish.Bias(channel)};
  }
  __device__ void operator()(const Channels& at, int64_t strip) const {
    const ImagePixel place(strip, h, strips());
    const int begin = place.column * kStrip - skew();  // of the result
    const Places<kSpan> under{(begin * kDown - before_w) / kUp, source_w, channels};
    // The first row of taps that has a row of the source under it.
    int i = (before_h - place.row * kDown) & (kUp - 1);
    int row = (place.row * kDown + i - before_h) / kUp;
    const T* from = source + (place.image * source_h + row) * source_w * channels + at.first;
    const T* taps = filter + i * kSize * next_tap + at.first;
    Floats<N> sums[kStrip] = {};
    for (; i < kSize; i += kUp) {
      if (row >= 0 && row < source_h) AddRow(from, under, taps, sums);
      ++row;
      from += source_w * channels;
      taps += kUp * kSize * next_tap;
    }
    const Places<kStrip> to{begin, w, channels};
    const int64_t first = (place.image * h + place.row) * w * channels + at.first;
    for (int c = 0; c < kStrip; ++c) {
      if (!to.Has(c)) continue;
      const int64_t element = first + (begin + c) * channels;
      Store<N>(result + element, finish(sums[c], at.bias, element));
    }
  }

  // What one row of taps adds.
  __device__ void AddRow(const T* row, const Places<kSpan>& under, const T* taps,
                         Floats<N>* sums) const {
    Pack<T, N> packs[kSpan];
    under.Read(row + under.first * channels, packs);
    Floats<N> weights[kSize];
    for (int j = 0; j < kSize; ++j) weights[j] = Load<N>(taps + j * next_tap);
    for (int j = 0; j < kSpan; ++j) {
      const Floats<N> values = ToFloats(packs[j]);
      for (int c = 0; c < kStrip; ++c) {
        const int tap = j * kUp - c * kDown;  // of pixel c over this column
        if (tap >= 0 && tap < kSize) AddProducts(sums[c], values, weights[tap]);
      }
    }
  }
};

// The gradient of the filter, as it lies in memory (R,S,C): a column of sums for kRows rows of taps
// and each channel, kRows * kSize values.
template <typename T, int N, int kSize, int kRows, int kStride>
struct FilterStrips {
  static constexpr int kAhead = 1;                              // reads enough at once
  static constexpr int kSpan = (kStrip - 1) * kStride + kSize;  // under a strip
  Window g;
  int64_t images;
  const T *x, *dy;

  __host__ __device__ int strips() const { return (g.q + kStrip - 1) / kStrip; }  // of a row
  __host__ __device__ int64_t Pixels() const { return images * g.p * strips(); }

  struct Element {
    int channel, row;  // the first one of taps
  };
  __device__ Element Column(int64_t element) const {
    return {static_cast<int>(element % g.c), static_cast<int>(element / g.c) * kRows};
  }
  __device__ ImagePixel Read(const Element&, int64_t strip) const {
    return ImagePixel(strip, g.p, strips());
  }
  __device__ void Add(const Element& e, int64_t, const ImagePixel& place, Floats<N>* sums) const {
    const int begin = place.column * kStrip;
    const Places<kStrip> above{begin, g.q, g.c};
    Pack<T, N> packs[kStrip];
    above.Read(dy + ((place.image * g.p + place.row) * g.q + begin) * g.c + e.channel, packs);
    Floats<N> gradients[kStrip];
    for (int c = 0; c < kStrip; ++c) gradients[c] = ToFloats(packs[c]);
    const Places<kSpan> under{begin * kStride - g.left, g.w, g.c};
    const int row = place.row * kStride + e.row - g.top;
    const T* from = x + ((place.image * g.h + row) * g.w + under.first) * g.c + e.channel;
    for (int i = 0; i < kRows; ++i, from += g.w * g.c) {
      if (row + i >= 0 && row + i < g.h) AddRow(from, under, gradients, sums + i * kSize);
    }
  }

  // To the sums of one row of taps.
  __device__ void AddRow(const T* from, const Places<kSpan>& under, const Floats<N>* gradients,
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

// Calls f.operator()<kSize, kStride>() where there are strips for such a convolution in packs of N;
// false: there are none.
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
