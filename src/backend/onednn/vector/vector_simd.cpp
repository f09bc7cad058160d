// The vector kernels of vector.h, compiled once for each x86-64 level by carole_simd_source().
//
// The lanes of a plane are cut into pieces of 16, 8, 4 and 1 channels. Each piece is one vector of
// the compiler. The loop over pixels is the inner one, so a piece's accumulators stay in registers.
#include <cmath>
#include <cstring>

#include "src/backend/onednn/vector/lanes.h"
#include "src/backend/onednn/vector/vector.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {
namespace {

// The result of a ReLU: v clamped to [0, top].
template <typename V>
inline V ClampRelu(V v, float top) {
  const V floored = Positive(v);
  return floored > top ? V{} + top : floored;
}

// v where the ReLU's result y lies between 0 and top, else 0.
template <typename V>
inline V MaskedByRelu(V y, float top, V v) {
  return y > 0 ? (y < top ? v : V{}) : V{};
}

template <typename T>
void Moments(const T* x, Plane plane, float* mean, float* m2) {
  ForLanes(plane.lanes, [&]<int kLanes>(int64_t lane) {
    const Vec<kLanes> pivot = Load<kLanes>(x + lane);
    Vec<kLanes> s1[2] = {}, s2[2] = {};  // two independent sums hide the latency of additions
    const T* p = x + lane;
    for (int64_t i = 0; i < plane.pixels; ++i, p += plane.stride) {
      const Vec<kLanes> d = Load<kLanes>(p) - pivot;
      s1[i & 1] += d;
      s2[i & 1] += d * d;
    }
    const float n = static_cast<float>(plane.pixels);
    const Vec<kLanes> sum = s1[0] + s1[1];
    Store(mean + lane, pivot + sum / n);
    Store(m2 + lane, Positive((s2[0] + s2[1]) - sum * sum / n));
  });
}

template <bool kResidual, bool kRelu, typename T>
void NormalizeAs(const T* x, const T* residual, T* y, Plane plane, const float* scale,
                 const float* shift, float top) {
  ForLanes(plane.lanes, [&]<int kLanes>(int64_t lane) {
    const Vec<kLanes> a = Load<kLanes>(scale + lane), b = Load<kLanes>(shift + lane);
    for (int64_t i = 0, at = lane; i < plane.pixels; ++i, at += plane.stride) {
      Vec<kLanes> v = Load<kLanes>(x + at) * a + b;
      if constexpr (kResidual) v += Load<kLanes>(residual + at);
      if constexpr (kRelu) v = ClampRelu(v, top);
      Store(y + at, v);
    }
  });
}

template <typename T>
void Normalize(const T* x, const T* residual, T* y, Plane plane, const float* scale,
               const float* shift, bool relu, float top) {
  const bool adds = residual != nullptr;
  const auto normalize = adds ? (relu ? NormalizeAs<true, true, T> : NormalizeAs<true, false, T>)
                              : (relu ? NormalizeAs<false, true, T> : NormalizeAs<false, false, T>);
  normalize(x, residual, y, plane, scale, shift, top);
}

enum class Mask { kNone, kFromY, kRecomputed };

template <Mask kMask, int kLanes, typename T>
inline Vec<kLanes> Masked(Vec<kLanes> dy, Vec<kLanes> x, const ReluMask<T>& mask, int64_t at,
                          Vec<kLanes> scale, Vec<kLanes> shift) {
  if constexpr (kMask == Mask::kFromY) return MaskedByRelu(Load<kLanes>(mask.y + at), mask.top, dy);
  if constexpr (kMask == Mask::kRecomputed) return MaskedByRelu(x * scale + shift, mask.top, dy);
  return dy;
}

template <Mask kMask, bool kStore, bool kTwo, typename T>
void BackwardSumsAs(const T* dy, int64_t dy_stride, const T* dy2, const T* x, ReluMask<T> mask,
                    const float* mean, Plane plane, float* sum_g, float* sum_gx, T* masked_dy) {
  ForLanes(plane.lanes, [&]<int kLanes>(int64_t lane) {
    using V = Vec<kLanes>;
    const V m = Load<kLanes>(mean + lane);
    V scale{}, shift{};
    if constexpr (kMask == Mask::kRecomputed) {
      scale = Load<kLanes>(mask.scale + lane);
      shift = Load<kLanes>(mask.shift + lane);
    }
    V s1[2] = {}, s2[2] = {};
    const T* from = dy + lane;
    for (int64_t i = 0, at = lane; i < plane.pixels; ++i, at += plane.stride, from += dy_stride) {
      const V v = Load<kLanes>(x + at);
      V unmasked = Load<kLanes>(from);
      if constexpr (kTwo) unmasked += Load<kLanes>(dy2 + at);
      const V g = Masked<kMask, kLanes>(unmasked, v, mask, at, scale, shift);
      if constexpr (kStore) Store(masked_dy + at, g);
      s1[i & 1] += g;
      s2[i & 1] += g * (v - m);
    }
    Store(sum_g + lane, s1[0] + s1[1]);
    Store(sum_gx + lane, s2[0] + s2[1]);
  });
}

// Calls f.operator()<kMask>() for the kind of this mask.
template <typename T, typename F>
void WithMask(const ReluMask<T>& mask, F f) {
  if (mask.y != nullptr) return f.template operator()<Mask::kFromY>();
  if (mask.scale != nullptr) return f.template operator()<Mask::kRecomputed>();
  f.template operator()<Mask::kNone>();
}

template <typename T>
void BackwardSums(const T* dy, int64_t dy_stride, const T* dy2, const T* x, ReluMask<T> mask,
                  const float* mean, Plane plane, float* sum_g, float* sum_gx, T* masked_dy) {
  WithMask(mask, [&]<Mask kMask>() {
    const auto sums = dy2 != nullptr         ? BackwardSumsAs<kMask, true, true, T>
                      : masked_dy != nullptr ? BackwardSumsAs<kMask, true, false, T>
                                             : BackwardSumsAs<kMask, false, false, T>;
    sums(dy, dy_stride, dy2, x, mask, mean, plane, sum_g, sum_gx, masked_dy);
  });
}

template <Mask kMask, bool kAddend, typename T>
void BackwardDataAs(const T* dy, int64_t dy_stride, const T* x, ReluMask<T> mask, const float* mean,
                    const float* a, const float* k1, const float* k2, const T* addend, Plane plane,
                    T* dx) {
  ForLanes(plane.lanes, [&]<int kLanes>(int64_t lane) {
    using V = Vec<kLanes>;
    const V m = Load<kLanes>(mean + lane), va = Load<kLanes>(a + lane);
    const V v1 = Load<kLanes>(k1 + lane), v2 = Load<kLanes>(k2 + lane);
    V scale{}, shift{};
    if constexpr (kMask == Mask::kRecomputed) {
      scale = Load<kLanes>(mask.scale + lane);
      shift = Load<kLanes>(mask.shift + lane);
    }
    const T* from = dy + lane;
    for (int64_t i = 0, at = lane; i < plane.pixels; ++i, at += plane.stride, from += dy_stride) {
      const V v = Load<kLanes>(x + at);
      const V g = Masked<kMask, kLanes>(Load<kLanes>(from), v, mask, at, scale, shift);
      V result = va * (g - v1 - (v - m) * v2);
      if constexpr (kAddend) result += Load<kLanes>(addend + at);
      Store(dx + at, result);
    }
  });
}

template <typename T>
void BackwardData(const T* dy, int64_t dy_stride, const T* x, ReluMask<T> mask, const float* mean,
                  const float* a, const float* k1, const float* k2, const T* addend, Plane plane,
                  T* dx) {
  WithMask(mask, [&]<Mask kMask>() {
    const auto data =
        addend != nullptr ? BackwardDataAs<kMask, true, T> : BackwardDataAs<kMask, false, T>;
    data(dy, dy_stride, x, mask, mean, a, k1, k2, addend, plane, dx);
  });
}

template <typename T>
void Relu(const T* x, T* y, int64_t count, float ceiling) {
  const float top = ceiling > 0 ? ceiling : INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    float v = x[i];
    v = v < 0 ? 0 : v;  // NaN stays NaN
    y[i] = static_cast<T>(v > top ? top : v);
  }
}

template <typename T>
void ReluBackward(const T* dy, const T* y, T* dx, int64_t count, float ceiling) {
  const float top = ceiling > 0 ? ceiling : INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    const float v = y[i], g = dy[i];
    dx[i] = static_cast<T>(v > 0 && v < top ? g : 0);
  }
}

template <bool kSwish, typename T>
void HardAs(const T* x, T* y, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) {
    const float v = x[i];
    float gate = v + 3;
    gate = gate > 0 ? gate : 0;
    gate = gate < 6 ? gate : 6;
    y[i] = static_cast<T>((kSwish ? v * gate : gate) * factor);
  }
}

template <typename T>
void Hard(const T* x, T* y, int64_t count, bool swish, float factor) {
  swish ? HardAs<true>(x, y, count, factor) : HardAs<false>(x, y, count, factor);
}

template <bool kSwish, typename T>
void HardBackwardAs(const T* dy, const T* x, T* dx, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) {
    const float v = x[i], shifted = v + 3;
    const bool inside = shifted > 0 && shifted < 6;
    const float gate = shifted <= 0 ? 0.f : shifted < 6 ? shifted : 6.f;
    const float slope = kSwish ? gate + (inside ? v : 0.f) : (inside ? 1.f : 0.f);
    dx[i] = static_cast<T>(dy[i] * factor * slope);
  }
}

template <typename T>
void HardBackward(const T* dy, const T* x, T* dx, int64_t count, bool swish, float factor) {
  swish ? HardBackwardAs<true>(dy, x, dx, count, factor)
        : HardBackwardAs<false>(dy, x, dx, count, factor);
}

template <typename T>
void Scale(const T* x, T* y, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(factor * x[i]);
}

template <typename T>
void ScaledAdd(const T* a, const T* b, T* y, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(a[i] + factor * b[i]);
}

// The range [begin, end) of results along one dimension that read a pixel of the image (not
// padding) through tap `tap`.
struct Range {
  Range(int64_t image, int64_t results, int64_t stride, int64_t before, int64_t tap) {
    begin = tap < before ? (before - tap + stride - 1) / stride : 0;
    const int64_t last = image - 1 + before - tap;
    end = last < 0 ? 0 : last / stride + 1;
    if (end > results) end = results;
  }
  int64_t begin, end;
};

template <typename T>
void DepthwiseFilter(const T* x, const T* dy, const DepthwiseWindow& w, float* dw) {
  ForLanes(w.lanes, [&]<int kLanes>(int64_t lane) {
    for (int64_t r = 0; r < w.r; ++r) {
      const Range rows(w.height, w.p, w.stride_h, w.top, r);
      for (int64_t s = 0; s < w.s; ++s) {
        const Range columns(w.width, w.q, w.stride_w, w.left, s);
        Vec<kLanes> sum[4] = {};  // four independent sums hide the latency of additions
        for (int64_t p = rows.begin; p < rows.end; ++p) {
          const int64_t h = p * w.stride_h + r - w.top, first = s - w.left;
          const T* from = x + (h * w.width + first) * w.lanes + lane;
          const T* to = dy + p * w.q * w.lanes + lane;
          for (int64_t q = columns.begin; q < columns.end; ++q) {
            sum[q & 3] +=
                Load<kLanes>(from + q * w.stride_w * w.lanes) * Load<kLanes>(to + q * w.lanes);
          }
        }
        Store(dw + (r * w.s + s) * w.lanes + lane, (sum[0] + sum[1]) + (sum[2] + sum[3]));
      }
    }
  });
}

// Copies many lanes with one memcpy for each pixel. Copies few lanes with vector loads and stores,
// the same lanes of all pixels at a time.
template <typename T>
void CopyLanes(const T* from, int64_t from_stride, T* to, Plane plane) {
  if (plane.lanes > 32) {
    for (int64_t i = 0; i < plane.pixels; ++i, from += from_stride, to += plane.stride)
      std::memcpy(to, from, sizeof(T) * static_cast<size_t>(plane.lanes));
    return;
  }
  ForLanes(plane.lanes, [&]<int kLanes>(int64_t lane) {
    for (int64_t i = 0; i < plane.pixels; ++i)
      Store(to + i * plane.stride + lane, Load<kLanes>(from + i * from_stride + lane));
  });
}

template <typename T>
void Add(const T* a, const T* b, T* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<T>(a[i] + b[i]);
}

// Computes 16 blocks of Philox4x32-10 at once: words[w][j] is word w of block first_block + j.
void PhiloxBlocks(const DropoutWords& w, uint64_t first_block, uint32_t words[4][16]) {
  for (int j = 0; j < 16; ++j) {
    uint32_t c0 = static_cast<uint32_t>(first_block + j),
             c1 = static_cast<uint32_t>((first_block + j) >> 32);
    uint32_t c2 = w.stream[0], c3 = w.stream[1], k0 = w.key[0], k1 = w.key[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
      const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0,
                     n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      c0 = n0;
      c2 = n2;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    words[0][j] = c0;
    words[1][j] = c1;
    words[2][j] = c2;
    words[3][j] = c3;
  }
}

template <typename T>
void Dropout(const T* x, T* y, int64_t count, const DropoutWords& w) {
  uint32_t words[4][16];
  uint64_t block = w.first / 4;
  for (int64_t i = -static_cast<int64_t>(w.first % 4); i < count; i += 64, block += 16) {
    PhiloxBlocks(w, block, words);
    for (int64_t k = i < 0 ? -i : 0; k < 64 && i + k < count; ++k) {
      const uint32_t bits = words[k % 4][k / 4] >> 8;
      y[i + k] = static_cast<T>(bits < w.threshold ? x[i + k] * w.scale : 0);
    }
  }
}

// s^-beta. The common exponent 3/4 is computed with two square roots, which vectorize.
inline float Power(float s, float beta) {
  return beta == 0.75f ? 1 / std::sqrt(s * std::sqrt(s)) : std::pow(s, -beta);
}

// sums[c] = bias + alpha * (sum of the squares of the channels around c) for one pixel.
template <typename T>
void SquareSums(const T* x, int64_t lanes, int64_t radius, float bias, float alpha, float* sums) {
  for (int64_t c = 0; c < lanes; ++c) {
    float sum = 0;
    const int64_t end = c + radius + 1 < lanes ? c + radius + 1 : lanes;
    for (int64_t j = c < radius ? 0 : c - radius; j < end; ++j) sum += x[j] * x[j];
    sums[c] = bias + alpha * sum;
  }
}

constexpr int64_t kMaxLrnChannels = 4096;

template <typename T>
void Lrn(const T* x, T* y, Plane plane, int64_t radius, float bias, float alpha, float beta) {
  float sums[kMaxLrnChannels];
  for (int64_t i = 0; i < plane.pixels; ++i, x += plane.stride, y += plane.stride) {
    SquareSums(x, plane.lanes, radius, bias, alpha, sums);
    for (int64_t c = 0; c < plane.lanes; ++c) y[c] = static_cast<T>(x[c] * Power(sums[c], beta));
  }
}

// dx_c = dy_c s_c^-beta - 2 alpha beta x_c sum_{|j-c| <= radius} dy_j x_j s_j^(-beta-1)
template <typename T>
void LrnBackward(const T* dy, const T* x, T* dx, Plane plane, int64_t radius, float bias,
                 float alpha, float beta) {
  float sums[kMaxLrnChannels], powers[kMaxLrnChannels], ratios[kMaxLrnChannels];
  for (int64_t i = 0; i < plane.pixels;
       ++i, x += plane.stride, dy += plane.stride, dx += plane.stride) {
    SquareSums(x, plane.lanes, radius, bias, alpha, sums);
    for (int64_t c = 0; c < plane.lanes; ++c) powers[c] = dy[c] * Power(sums[c], beta);
    for (int64_t c = 0; c < plane.lanes; ++c) ratios[c] = powers[c] * x[c] / sums[c];
    for (int64_t c = 0; c < plane.lanes; ++c) {
      float sum = 0;
      const int64_t end = c + radius + 1 < plane.lanes ? c + radius + 1 : plane.lanes;
      for (int64_t j = c < radius ? 0 : c - radius; j < end; ++j) sum += ratios[j];
      dx[c] = static_cast<T>(powers[c] - 2 * alpha * beta * x[c] * sum);
    }
  }
}

template <typename T>
constexpr VectorKernels<T> kTable = {
    Moments<T>,   Normalize<T>,    BackwardSums<T>, BackwardData<T>,
    Relu<T>,      ReluBackward<T>, Hard<T>,         HardBackward<T>,
    Add<T>,       Scale<T>,        ScaledAdd<T>,    DepthwiseFilter<T>,
    CopyLanes<T>, Dropout<T>,      Lrn<T>,          LrnBackward<T>};

}  // namespace

extern const VectorKernels<float> kFloats;
extern const VectorKernels<Bf16> kBf16s;
const VectorKernels<float> kFloats = kTable<float>;
const VectorKernels<Bf16> kBf16s = kTable<Bf16>;

}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE
