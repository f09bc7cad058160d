// Random erasing (Zhong et al. 2020, "Random erasing data augmentation"): overwrites rectangles of
// an image. Distributions and defaults are those of timm; torchvision's RandomErasing is
// random_erasing_max_area 0.33 and random_erasing_max_aspect 3.3.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "io/augmentation/augmentation.h"
#include "io/image/jpeg/region.h"

namespace carole::io {

class RandomErasing : public Augmentation {
 public:
  Settings settings() override {
    return {
        {"random_erasing_prob", "Probability that a training image is erased in part; 0: never.",
         &prob_, Between(0, 1)},
        {"random_erasing_mode",
         "Values of what random erasing erases: 0 (const), one random color (rand) or noise "
         "(pixel).",
         &mode_,
         {},
         {"const", "rand", "pixel"}},
        {"random_erasing_count",
         "Largest number of rectangles that random erasing erases in an image; they share the "
         "area.",
         &max_count_, Between(1, 1000)},
        {"random_erasing_min_area", "Smallest part of the image that random erasing erases.",
         &min_area_, Between(0, 1)},
        {"random_erasing_max_area", "Largest part of the image that random erasing erases.",
         &max_area_, Between(0, 1)},
        {"random_erasing_min_aspect", "Smallest ratio of height to width in random erasing.",
         &min_aspect_, MoreThan(0)},
        {"random_erasing_max_aspect",
         "Largest ratio of height to width in random erasing; 0: the inverse of the smallest.",
         &max_aspect_, AtLeast(0)}};
  }

  bool is_active() const override { return prob_ > 0; }

  void Apply(const ImageTask& image) const override {
    if (image.rng.NextDouble() >= prob_) return;
    for (const Region& region : DrawRegions(image)) Erase(image, region);
  }

  // Four uniform numbers in [0, 1], which decide where a rectangle is.
  struct Draw {
    double area = 0, log_aspect = 0, top = 0, left = 0;
  };
  // Returns a rectangle in an image of this size, or nullopt if it does not fit. It is one of
  // `count`.
  std::optional<Region> RegionAt(int height, int width, int64_t count, const Draw& draw) const {
    const auto between = [](double low, double high, double u) { return low + (high - low) * u; };
    const double pixels = static_cast<double>(height) * width;
    const double area =
        pixels * between(min_area_, max_area_, draw.area) / static_cast<double>(count);
    const double max_aspect = max_aspect_ > 0 ? max_aspect_ : 1 / min_aspect_;
    const double aspect =
        std::exp(between(std::log(min_aspect_), std::log(max_aspect), draw.log_aspect));
    const double rows = std::nearbyint(std::sqrt(area * aspect));
    const double columns = std::nearbyint(std::sqrt(area / aspect));
    if (rows >= height || columns >= width) return std::nullopt;
    // An integer in [0, room].
    const auto at = [](double room, double u) {
      return static_cast<int>(std::min(room, std::floor((room + 1) * u)));
    };
    return Region{.top = at(height - rows, draw.top),
                  .left = at(width - columns, draw.left),
                  .height = static_cast<int>(rows),
                  .width = static_cast<int>(columns)};
  }

 private:
  static constexpr int kAttempts = 10;  // for each rectangle

  std::vector<Region> DrawRegions(const ImageTask& image) const {
    const int64_t count =
        1 + static_cast<int64_t>(image.rng.NextBelow(static_cast<uint64_t>(max_count_)));
    std::vector<Region> regions;
    for (int64_t i = 0; i < count; ++i) {
      for (int attempt = 0; attempt < kAttempts; ++attempt) {
        Draw draw;
        for (double* u : {&draw.area, &draw.log_aspect, &draw.top, &draw.left})
          *u = image.rng.NextDouble();
        const auto region = RegionAt(image.height, image.width, count, draw);
        if (!region) continue;
        regions.push_back(*region);
        break;
      }
    }
    return regions;
  }

  void Erase(const ImageTask& image, const Region& region) const {
    const auto noise = [&] { return static_cast<float>(image.rng.NextNormal()) * image.deviation; };
    std::vector<float> color(static_cast<size_t>(image.channels), 0.0f);
    if (mode_ == "rand") std::ranges::generate(color, noise);
    const bool is_noise = mode_ == "pixel";
    for (int y = region.top; y < region.top + region.height; ++y) {
      for (int x = region.left; x < region.left + region.width; ++x) {
        float* pixel = image.values.data() + (int64_t{y} * image.width + x) * image.channels;
        for (int c = 0; c < image.channels; ++c) pixel[c] = is_noise ? noise() : color[c];
      }
    }
  }

  double prob_ = 0;
  std::string mode_ = "const";
  int64_t max_count_ = 1;
  double min_area_ = 0.02, max_area_ = 1.0 / 3;
  double min_aspect_ = 0.3, max_aspect_ = 0;
};

}  // namespace carole::io
