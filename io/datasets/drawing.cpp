#include "io/datasets/drawing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/core/rng.h"

namespace carole::io {
namespace {

using Color = std::array<float, 3>;  // red, green, blue in [0, 1]

// Converts HSV to RGB. Saturation and value are in [0, 1]; hue is in turns.
Color FromHsv(float hue, float saturation, float value) {
  Color color;
  for (int c = 0; c < 3; ++c) {
    const float turn = std::fmod(hue * 6 + (c == 0 ? 5.0f : c == 1 ? 3.0f : 1.0f), 6.0f);
    color[c] = value * (1 - saturation * std::clamp(std::min(turn, 4 - turn), 0.0f, 1.0f));
  }
  return color;
}

// Returns a uniform random number in [low, high).
float Uniform(Rng& rng, float low, float high) { return low + (high - low) * rng.NextFloat(); }

// Hashes (key, index) to a number in [0, 1).
float HashToUnit(uint64_t key, uint64_t index) {
  return static_cast<float>(SplitMix64(key ^ SplitMix64(index)) >> 40) * 0x1p-24f;
}

// Smooth noise in [0, 1): random values at the corners of squares, with smooth interpolation
// between them.
class Noise {
 public:
  Noise(uint64_t key, int height, int width, int side) : side_(side), stride_(width / side + 2) {
    corners_.resize(static_cast<size_t>(stride_) * (height / side + 2));
    for (size_t i = 0; i < corners_.size(); ++i) corners_[i] = HashToUnit(key, i);
    ease_.resize(static_cast<size_t>(side));
    for (int i = 0; i < side; ++i) {
      const float t = static_cast<float>(i) / static_cast<float>(side);
      ease_[i] = t * t * (3 - 2 * t);
    }
  }

  float At(int x, int y) const {
    const float* corner = corners_.data() + y / side_ * stride_ + x / side_;
    const float u = ease_[x % side_];
    const float above = corner[0] + (corner[1] - corner[0]) * u;
    const float below = corner[stride_] + (corner[stride_ + 1] - corner[stride_]) * u;
    return above + (below - above) * ease_[y % side_];
  }

 private:
  int side_;
  int stride_;
  std::vector<float> corners_;
  std::vector<float> ease_;
};

// Whether the point (x, y) lies in the shape. Coordinates are relative to the object's center, in
// units of its half size.
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

// Whether the point belongs to the dark part of the object's surface.
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
  Color light;
  Color dark;
  float x, y;  // center, in pixels
  float half_size;
  float cosine, sine;

  // Returns the object's color at a pixel, or nullptr outside of the object.
  const Color* At(float px, float py) const {
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
  constexpr double kGoldenRatio =
      0.6180339887498949;  // its multiples modulo 1 spread any number of hues evenly
  const double turns = options.label * kGoldenRatio;
  const auto hue = static_cast<float>(turns - std::floor(turns));
  const float value = Uniform(rng, 0.7f, 1.0f);
  const float angle = Uniform(rng, -0.4f, 0.4f);
  const auto side = static_cast<float>(std::min(options.height, options.width));
  const float half_size = side * Uniform(rng, 0.18f, 0.38f);
  const auto draw_center = [&](int extent) {
    return Uniform(rng, half_size * 0.9f, static_cast<float>(extent) - half_size * 0.9f);
  };
  const float x = draw_center(options.width);
  return {.shape = options.label % kShapes,
          .pattern = options.label / kShapes % kPatterns,
          .light = FromHsv(hue, 0.9f, value),
          .dark = FromHsv(hue, 0.9f, value * 0.45f),
          .x = x,
          .y = draw_center(options.height),
          .half_size = half_size,
          .cosine = std::cos(angle),
          .sine = std::sin(angle)};
}

// The bounding box, in pixels, of the pixels that the object covers.
struct Extent {
  int left, top, right = -1, bottom = -1;

  void Add(int x, int y) {
    left = std::min(left, x);
    top = std::min(top, y);
    right = std::max(right, x);
    bottom = std::max(bottom, y);
  }
};

Box ToBox(const Extent& extent, const DrawingOptions& options) {
  const auto part = [](int pixels, int of) {
    return std::round(static_cast<float>(pixels) / static_cast<float>(of) * 10000) / 10000;
  };
  return {.ymin = part(extent.top, options.height),
          .xmin = part(extent.left, options.width),
          .ymax = part(extent.bottom + 1, options.height),
          .xmax = part(extent.right + 1, options.width)};
}

}  // namespace

Drawing Draw(const DrawingOptions& options) {
  constexpr float kGrain = 0.16f;  // makes JPEGs of quality 90 as large as those of photos
  Rng rng(options.seed, RngPurpose::kData, options.stream, options.number);
  const Object object = MakeObject(options, rng);
  const Color near = FromHsv(rng.NextFloat(), Uniform(rng, 0.1f, 0.4f), Uniform(rng, 0.2f, 0.8f));
  const Color far = FromHsv(rng.NextFloat(), Uniform(rng, 0.1f, 0.4f), Uniform(rng, 0.2f, 0.8f));
  const uint64_t key = uint64_t{rng.Next()} << 32 | rng.Next();

  Drawing drawing;
  AllocateImage("drawing", options.height, options.width, 3, &drawing.image);
  const Noise coarse(key, options.height, options.width, 64);
  const Noise fine(key + 1, options.height, options.width, 9);
  Extent extent{.left = options.width, .top = options.height};
  uint8_t* out = drawing.image.pixels.data();
  for (int y = 0; y < options.height; ++y) {
    for (int x = 0; x < options.width; ++x, out += 3) {
      const Color* surface = object.At(static_cast<float>(x), static_cast<float>(y));
      if (surface != nullptr) extent.Add(x, y);
      const float far_part = coarse.At(x, y);
      const uint64_t pixel = static_cast<uint64_t>(y) * options.width + x;
      const float grain =
          kGrain * (HashToUnit(key + 2, pixel) - 0.5f) + 0.25f * (fine.At(x, y) - 0.5f);
      for (int c = 0; c < 3; ++c) {
        const float base =
            surface != nullptr ? (*surface)[c] : near[c] + (far[c] - near[c]) * far_part;
        out[c] = static_cast<uint8_t>(std::lround(std::clamp(base + grain, 0.0f, 1.0f) * 255));
      }
    }
  }
  drawing.box = ToBox(extent, options);
  return drawing;
}

}  // namespace carole::io
