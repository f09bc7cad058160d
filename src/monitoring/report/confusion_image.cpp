// The parts of confusion.h that need no HTML: ConfusionImage() and LabelName().
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/monitoring/report/confusion.h"

namespace carole::monitoring {

io::Image ConfusionImage(const train::Metrics& metrics) {
  constexpr int64_t kPixels = 600, kLargestCell = 32;
  constexpr double kWhite = 255, kDark[] = {8, 48, 107};
  const int64_t classes = metrics.num_classes();
  const int64_t cell = std::clamp<int64_t>(kPixels / classes, 1, kLargestCell);
  const int side = static_cast<int>(classes * cell);
  io::Image image{.height = side, .width = side, .channels = 3};
  image.pixels.resize(static_cast<size_t>(side) * side * 3, 255);
  for (const auto& [key, count] : metrics.confusion()) {
    const int64_t label = key / classes, prediction = key % classes;
    const double share =
        std::sqrt(static_cast<double>(count) / static_cast<double>(metrics.samples_of(label)));
    for (int64_t y = label * cell; y < (label + 1) * cell; ++y) {
      for (int64_t x = prediction * cell; x < (prediction + 1) * cell; ++x) {
        for (int c = 0; c < 3; ++c)
          image.pixels[(y * side + x) * 3 + c] =
              static_cast<uint8_t>(kWhite + share * (kDark[c] - kWhite));
      }
    }
  }
  return image;
}

std::string LabelName(const std::vector<std::string>& names, int64_t label) {
  if (label >= static_cast<int64_t>(names.size())) return std::to_string(label);
  using Json = nlohmann::json;
  const std::string quoted =
      Json(names[label]).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

}  // namespace carole::monitoring
