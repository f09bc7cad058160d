// Box means, upsampling and color conversion of pixels_simd.h. Compiled once for each x86-64 level
// (carole_simd_source).
#include "io/image/jpeg/pixels_simd.h"

#include <cstring>

#include "io/image/jpeg/vector_simd.h"

namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE {

void InverseDct(const BlockRow& blocks, const int16_t* multipliers, uint8_t* samples,
                ptrdiff_t stride);  // idct_simd.cpp

namespace {

template <int width>
void BoxMeansOf(const BoxRow& boxes, uint8_t* __restrict out) {
  constexpr int kBoxes = 32;  // boxes per iteration
  const int shift = __builtin_ctz(static_cast<unsigned>(width * boxes.height));
  for (int begin = 0; begin < boxes.count; begin += kBoxes) {
    const int count = boxes.count - begin < kBoxes ? boxes.count - begin : kBoxes;
    uint16_t sums[kBoxes * width] = {};
    for (int y = 0; y < boxes.height; ++y) {
      const uint8_t* row = boxes.samples + y * boxes.stride + begin * width;
      for (int x = 0; x < count * width; ++x) sums[x] = static_cast<uint16_t>(sums[x] + row[x]);
    }
    for (int i = 0; i < count; ++i) {
      int sum = 1 << shift >> 1;
      for (int k = 0; k < width; ++k) sum += sums[i * width + k];
      out[begin + i] = static_cast<uint8_t>(sum >> shift);
    }
  }
}

void BoxMeans(const BoxRow& boxes, uint8_t* out) {
  if (boxes.width == 1) return BoxMeansOf<1>(boxes, out);
  if (boxes.width == 2) return BoxMeansOf<2>(boxes, out);
  if (boxes.width == 4) return BoxMeansOf<4>(boxes, out);
  BoxMeansOf<8>(boxes, out);
}

// Halves are rounded down and up alternately, which avoids a bias. libjpeg does the same.
void UpsampleColumns(const uint8_t* __restrict in, int count, uint8_t* __restrict out) {
  for (int i = 0; i < count; ++i) {
    const int middle = in[i] * 3;
    out[2 * i] = static_cast<uint8_t>((middle + in[i - 1] + 1) >> 2);
    out[2 * i + 1] = static_cast<uint8_t>((middle + in[i + 1] + 2) >> 2);
  }
}

void UpsampleBoth(const uint8_t* __restrict near, const uint8_t* __restrict far, int count,
                  uint8_t* __restrict out) {
  const auto sum = [&](int i) { return static_cast<uint16_t>(near[i] * 3 + far[i]); };
  for (int i = 0; i < count; ++i) {
    const auto middle = static_cast<uint16_t>(sum(i) * 3);
    out[2 * i] = static_cast<uint8_t>(static_cast<uint16_t>(middle + sum(i - 1) + 8) >> 4);
    out[2 * i + 1] = static_cast<uint8_t>(static_cast<uint16_t>(middle + sum(i + 1) + 7) >> 4);
  }
}

// YCbCr to RGB as JFIF defines it (ITU-R BT.601). The constants are multiplied by 65536. If the
// result exceeds 16 bits, an integer is subtracted from the constant and added in ToColor().
constexpr int16_t kCrToRed = 26345;     // 1.40200 - 1
constexpr int16_t kCbToGreen = -22554;  // -0.34414
constexpr int16_t kCrToGreen = 18734;   // -0.71414 + 1
constexpr int16_t kCbToBlue = -14942;   // 1.77200 - 2

struct Color {
  Vector red, green, blue;
};

// Returns v * factor / 65536, rounded.
inline Vector MultiplyRounded(Vector v, int16_t factor) {
  return CAROLE_VECTOR(srai_epi16)(Add(MultiplyHigh(Add(v, v), factor), Fill16(1)), 1);
}

// Returns the contribution of chroma to green, without the integer part of Cr's constant. The input
// holds alternating values of Cb and Cr.
inline Vector GreenFromChroma(Vector cb_and_cr) {
  const Vector factors = CAROLE_VECTOR(set1_epi32)(static_cast<int>(
      static_cast<uint32_t>(kCrToGreen) << 16 | static_cast<uint16_t>(kCbToGreen)));
  const Vector sum = CAROLE_VECTOR(madd_epi16)(cb_and_cr, factors);
  return CAROLE_VECTOR(srai_epi32)(
      CAROLE_VECTOR(add_epi32)(sum, CAROLE_VECTOR(set1_epi32)(1 << 15)), 16);
}

// Converts 16-bit values; cb and cr are centered at 0.
inline Color ToColor(Vector y, Vector cb, Vector cr) {
  const Vector green =
      CAROLE_VECTOR(packs_epi32)(GreenFromChroma(CAROLE_VECTOR(unpacklo_epi16)(cb, cr)),
                                 GreenFromChroma(CAROLE_VECTOR(unpackhi_epi16)(cb, cr)));
  return {.red = Add(y, Add(cr, MultiplyRounded(cr, kCrToRed))),
          .green = Add(y, Subtract(green, cr)),
          .blue = Add(y, Add(Add(cb, cb), MultiplyRounded(cb, kCbToBlue)))};
}

// 16 pixels of RGB fill three vectors. Returns the shuffle mask that moves 16 samples of `channel`
// to their bytes in vector `part` (0..2) and sets the other bytes to 0.
inline Vector ShuffleMask(int part, int channel) {
  alignas(16) uint8_t mask[16];
  for (int i = 0; i < 16; ++i) {
    const int byte = part * 16 + i;
    mask[i] = static_cast<uint8_t>(byte % 3 == channel ? byte / 3 : 0x80);
  }
  return Repeat(LoadLane(mask));
}

// Interleaves and stores kLanes * 16 pixels.
inline void StorePixels(Vector red, Vector green, Vector blue, uint8_t* rgb) {
  Vector parts[3];
#pragma GCC unroll 3
  for (int part = 0; part < 3; ++part) {
    const Vector r = CAROLE_VECTOR(shuffle_epi8)(red, ShuffleMask(part, 0));
    const Vector g = CAROLE_VECTOR(shuffle_epi8)(green, ShuffleMask(part, 1));
    const Vector b = CAROLE_VECTOR(shuffle_epi8)(blue, ShuffleMask(part, 2));
    parts[part] = CAROLE_WHOLE(or)(CAROLE_WHOLE(or)(r, g), b);
  }
#pragma GCC unroll 2
  for (int lane = 0; lane < kLanes; ++lane) {
#pragma GCC unroll 3
    for (int part = 0; part < 3; ++part)
      StoreLane(Lane(parts[part], lane), rgb + lane * 48 + part * 16);
  }
}

constexpr int kPixels = kLanes * 16;  // pixels per iteration

// Calls write(i, to) to store the pixels [i, i + kPixels) at `to`, for all i. The last, incomplete
// group goes through a buffer.
template <typename Write>
inline void ForPixels(int count, uint8_t* rgb, const Write& write) {
  int i = 0;
  for (; i + kPixels <= count; i += kPixels) write(i, rgb + i * 3);
  if (i == count) return;
  uint8_t pixels[kPixels * 3];
  write(i, pixels);
  std::memcpy(rgb + i * 3, pixels, static_cast<size_t>(count - i) * 3);
}

void ToRgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int count, uint8_t* rgb) {
  const Vector zero = CAROLE_WHOLE(setzero)();
  const Vector middle = Fill16(128);
  const auto low = [&](Vector v) { return CAROLE_VECTOR(unpacklo_epi8)(v, zero); };
  const auto high = [&](Vector v) { return CAROLE_VECTOR(unpackhi_epi8)(v, zero); };
  ForPixels(count, rgb, [&](int i, uint8_t* to) {
    const Vector luma = Load(y + i);
    const Vector blue = Load(cb + i);
    const Vector red = Load(cr + i);
    const Color a = ToColor(low(luma), Subtract(low(blue), middle), Subtract(low(red), middle));
    const Color b = ToColor(high(luma), Subtract(high(blue), middle), Subtract(high(red), middle));
    StorePixels(CAROLE_VECTOR(packus_epi16)(a.red, b.red),
                CAROLE_VECTOR(packus_epi16)(a.green, b.green),
                CAROLE_VECTOR(packus_epi16)(a.blue, b.blue), to);
  });
}

void GrayToRgb(const uint8_t* y, int count, uint8_t* rgb) {
  ForPixels(count, rgb, [&](int i, uint8_t* to) {
    const Vector gray = Load(y + i);
    StorePixels(gray, gray, gray, to);
  });
}

}  // namespace

PixelKernels MakePixelKernels() {
  return {.inverse_dct = InverseDct,
          .box_means = BoxMeans,
          .upsample_columns = UpsampleColumns,
          .upsample_both = UpsampleBoth,
          .to_rgb = ToRgb,
          .gray_to_rgb = GrayToRgb};
}

}  // namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE
