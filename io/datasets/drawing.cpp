#include "io/datasets/drawing.h"

#include <algorithm>
#include <cmath>

#include "src/core/rng.h"

namespace carole::io {
namespace {

using Colour = std::array<float, 3>;  // red, green, blue in [0, 1]

// Saturation and value in [0, 1]; hue in turns.
Colour FromHsv(float hue, float saturation, float value) {
  Colour colour;
  for (int c = 0; c < 3; ++c) {
    const float turn = std::fmod(hue * 6 + (c == 0 ? 5.0f : c == 1 ? 3.0f : 1.0f), 6.0f);
    colour[c] = value * (1 - saturation * std::clamp(std::min(turn, 4 - turn), 0.0f, 1.0f));
  }
  return colour;
}

float Between(Rng& rng, float low, float high) { return low + (high - low) * rng.NextFloat(); }

float Lattice(uint64_t key, int x, int y) {
  const uint64_t cell = uint64_t(uint32_t(y)) << 32 | uint32_t(x);
  return static_cast<float>(SplitMix64(key ^ SplitMix64(cell)) >> 40) * 0x1p-24f;
}

// Smooth noise in [0, 1): random values at the corners of squares, smoothly between.
float Noise(uint64_t key, float x, float y) {
  const float left = std::floor(x);
  const float top = std::floor(y);
  const int i = static_cast<int>(left);
  const int j = static_cast<int>(top);
  const auto ease = [](float t) { return t * t * (3 - 2 * t); };
  const float u = ease(x - left);
  const float above = std::lerp(Lattice(key, i, j), Lattice(key, i + 1, j), u);
  const float below = std::lerp(Lattice(key, i, j + 1), Lattice(key, i + 1, j + 1), u);
  return std::lerp(above, below, ease(y - top));
}

// Whether (x, y), in units of the object's half size, lies in the shape.
bool InShape(int shape, float x, float y) {
  const float square = x * x + y * y;
  switch (shape) {
    case 0:
      return square < 1;
    case 1:
      return std::max(std::abs(x), std::abs(y)) < 0.8f;
    case 2:
      return y < 0.7f && y > 2 * std::abs(x) - 0.9f;
    case 3:
      return square < 1 && square > 0.3f;
    default:
      return std::min(std::abs(x), std::abs(y)) < 0.3f &&
             std::max(std::abs(x), std::abs(y)) < 0.95f;
  }
}

// Light and dark parts of the object's surface.
bool InPattern(int pattern, float x, float y) {
  const bool odd_x = (static_cast<int>(std::floor(x * 4)) & 1) != 0;
  const bool odd_y = (static_cast<int>(std::floor(y * 4)) & 1) != 0;
  switch (pattern) {
    case 0:
      return false;
    case 1:
      return odd_x;
    case 2:
      return odd_y;
    default:
      return odd_x != odd_y;
  }
}

struct Object {
  int shape;
  int pattern;
  Colour light;
  Colour dark;
  float x, y;  // of its middle, in pixels
  float half_size;
  float cosine, sine;

  // The colour at a pixel, or nullptr beside the object.
  const Colour* At(float px, float py) const {
    const float dx = (px - x) / half_size;
    const float dy = (py - y) / half_size;
    const float u = cosine * dx + sine * dy;
    const float v = cosine * dy - sine * dx;
    if (!InShape(shape, u, v)) return nullptr;
    return InPattern(pattern, u, v) ? &dark : &light;
  }
};

Object MakeObject(const DrawingOptions& options, Rng& rng) {
  constexpr int kShapes = 5;
  constexpr int kPatterns = 4;
  constexpr double kGoldenRatio = 0.6180339887498949;  // spreads any number of hues evenly
  const double turns = options.label * kGoldenRatio;
  const auto hue = static_cast<float>(turns - std::floor(turns));
  const float value = Between(rng, 0.7f, 1.0f);
  const float turn = Between(rng, -0.4f, 0.4f);
  const auto side = static_cast<float>(std::min(options.height, options.width));
  const float half_size = side * Between(rng, 0.18f, 0.38f);
  const auto place = [&](int extent) {
    return Between(rng, half_size * 0.9f, static_cast<float>(extent) - half_size * 0.9f);
  };
  const float x = place(options.width);
  return {.shape = options.label % kShapes,
          .pattern = options.label / kShapes % kPatterns,
          .light = FromHsv(hue, 0.9f, value),
          .dark = FromHsv(hue, 0.9f, value * 0.45f),
          .x = x,
          .y = place(options.height),
          .half_size = half_size,
          .cosine = std::cos(turn),
          .sine = std::sin(turn)};
}

// The box of the pixels that the object covers.
struct Extent {
  int left, top, right = -1, bottom = -1;

  void Add(int x, int y) {
    left = std::min(left, x);
    top = std::min(top, y);
    right = std::max(right, x);
    bottom = std::max(bottom, y);
  }
};

BoundingBox ToBox(const Extent& extent, const DrawingOptions& options) {
  const auto part = [](int pixels, int of) {
    return std::round(static_cast<float>(pixels) / static_cast<float>(of) * 10000) / 10000;
  };
  return {part(extent.left, options.width), part(extent.top, options.height),
          part(extent.right + 1, options.width), part(extent.bottom + 1, options.height)};
}

}  // namespace

Drawing Draw(const DrawingOptions& options) {
  constexpr float kGrain = 0.16f;  // gives JPEGs of quality 90 the size of photographs
  Rng rng(options.seed, RngPurpose::kData, options.stream, options.number);
  const Object object = MakeObject(options, rng);
  const Colour near = FromHsv(rng.NextFloat(), Between(rng, 0.1f, 0.4f), Between(rng, 0.2f, 0.8f));
  const Colour far = FromHsv(rng.NextFloat(), Between(rng, 0.1f, 0.4f), Between(rng, 0.2f, 0.8f));
  const uint64_t key = uint64_t{rng.Next()} << 32 | rng.Next();

  Drawing drawing;
  ResizeImage("drawing", options.height, options.width, 3, &drawing.image);
  Extent extent{.left = options.width, .top = options.height};
  uint8_t* out = drawing.image.pixels.data();
  for (int y = 0; y < options.height; ++y) {
    for (int x = 0; x < options.width; ++x, out += 3) {
      const auto px = static_cast<float>(x);
      const auto py = static_cast<float>(y);
      const float coarse = Noise(key, px / 64, py / 64);
      const float fine = Noise(key + 1, px / 9, py / 9);
      const Colour* surface = object.At(px, py);
      if (surface != nullptr) extent.Add(x, y);
      const float grain = kGrain * (Lattice(key + 2, x, y) - 0.5f) + 0.25f * (fine - 0.5f);
      for (int c = 0; c < 3; ++c) {
        const float base = surface != nullptr ? (*surface)[c] : std::lerp(near[c], far[c], coarse);
        out[c] = static_cast<uint8_t>(std::clamp(base + grain, 0.0f, 1.0f) * 255 + 0.5f);
      }
    }
  }
  drawing.box = ToBox(extent, options);
  return drawing;
}

}  // namespace carole::io
