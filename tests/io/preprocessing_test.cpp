#include "io/preprocessing.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/io/damage.h"

namespace carole::io {
namespace {

const std::filesystem::path kData = CAROLE_TEST_DATA;

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  double sum = 0;
  double squares = 0;
  for (float v : values) sum += v;
  for (float v : values) squares += (v - sum / values.size()) * (v - sum / values.size());
  return {sum / values.size(), std::sqrt(squares / values.size())};
}

// Outputs recorded from TF-Slim's own evaluation preprocessing of decoded JPEGs.
TEST(Preprocessing, EvaluationEqualsTensorFlow) {
  const auto golden = nlohmann::json::parse(ReadText(kData / "io_preprocessing.json"));
  int checked = 0;
  for (const auto& entry : golden["outputs"]) {
    const std::string prep = entry["prep"];
    if (prep != "lenet" && prep != "cifarnet") continue;
    SCOPED_TRACE(prep + " " + std::string(entry["file"]));
    const int size = entry["size"];
    const int channels = entry["channels"];
    Image image;
    DecodeImage(ReadText(kData / "io_images" / std::string(entry["file"])), channels, &image);
    std::vector<float> out(static_cast<size_t>(size) * size * channels, NAN);
    FindPreprocessing(prep).eval(
        {.image = image.view(), .height = size, .width = size, .out = out});
    // TensorFlow takes mean and deviation in float32; values are of order 1.
    const double tolerance = prep == "lenet" ? 0 : 5e-6;
    for (const auto& sample : entry["samples"])
      EXPECT_NEAR(out[sample[0]], float{sample[1]}, tolerance);
    EXPECT_NEAR(MomentsOf(out).mean, double{entry["mean"]}, 1e-6);
    EXPECT_NEAR(MomentsOf(out).deviation, double{entry["std"]}, 1e-6);
    ++checked;
  }
  EXPECT_EQ(checked, 20);
}

// (height, width, channels) bytes that differ from place to place.
Image Pattern(int height, int width, int channels) {
  Image image;
  ResizeImage("test", height, width, channels, &image);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(i * 29 + i / 5);
  return image;
}

TEST(Preprocessing, LenetPadsWithMinusOne) {
  const Image image = Pattern(1, 3, 1);
  std::vector<float> out(4 * 4, NAN);
  PreprocessLenet({.image = image.view(), .height = 4, .width = 4, .out = out});
  // Three rows and one column are missing: one row and no column before, the rest behind.
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) {
      EXPECT_EQ(out[y * 4 + x], y == 1 && x < 3 ? (image.pixels[x] - 128) / 128.0f : -1.0f)
          << y << "," << x;
    }
  }
}

TEST(Preprocessing, FlatImageIsNotDividedByZero) {
  Image image;
  ResizeImage("test", 32, 32, 3, &image);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{200});
  std::vector<float> out(32 * 32 * 3, NAN);
  PreprocessCifarnetEval({.image = image.view(), .height = 32, .width = 32, .out = out});
  for (float v : out) EXPECT_NEAR(v, 0, 1e-3);
}

// TF-Slim's steps one after the other, each with its own picture; draws in the same order as ours.
std::vector<float> CifarnetTrainStepByStep(const Image& image, int size, Rng rng) {
  const int rows = image.height + 8 - size;
  const int columns = image.width + 8 - size;
  const int top = static_cast<int>(rng.NextBelow(rows + 1)) - 4;
  const int left = static_cast<int>(rng.NextBelow(columns + 1)) - 4;
  const bool mirrored = rng.NextFloat() < 0.5f;
  const double brightness = -63.0 + 126.0 * rng.NextFloat();
  const double contrast = 0.2 + 1.6 * rng.NextFloat();
  const int c = image.channels;
  std::vector<double> x(static_cast<size_t>(size) * size * c);
  for (int i = 0; i < size * size * c; ++i) {
    const int out_x = i / c % size;
    const int from_x = left + (mirrored ? size - 1 - out_x : out_x);
    const int from_y = top + i / c / size;
    const bool inside = from_x >= 0 && from_x < image.width && from_y >= 0 && from_y < image.height;
    x[i] = (inside ? image.pixels[(from_y * image.width + from_x) * c + i % c] : 0) + brightness;
  }
  std::vector<double> mean(c);
  for (size_t i = 0; i < x.size(); ++i) mean[i % c] += x[i] / (size * size);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = (x[i] - mean[i % c]) * contrast + mean[i % c];
    sum += x[i];
  }
  double squares = 0;
  for (double& v : x) {
    v -= sum / x.size();
    squares += v * v;
  }
  const double deviation = std::max(std::sqrt(squares / x.size()), 1 / std::sqrt(double(x.size())));
  std::vector<float> out;
  for (double v : x) out.push_back(static_cast<float>(v / deviation));
  return out;
}

TEST(Preprocessing, CifarnetTrainingEqualsItsStepsOneByOne) {
  for (int channels : {1, 3}) {
    for (auto [height, width] : {std::pair{32, 32}, {24, 40}}) {
      const Image image = Pattern(height, width, channels);
      for (uint64_t record = 0; record < 50; ++record) {
        Rng rng(1, RngPurpose::kAugment, 0, record);
        std::vector<float> out(32 * 32 * channels, NAN);
        PreprocessCifarnetTrain(
            {.image = image.view(), .height = 32, .width = 32, .out = out, .rng = &rng});
        const auto want =
            CifarnetTrainStepByStep(image, 32, Rng(1, RngPurpose::kAugment, 0, record));
        for (size_t i = 0; i < out.size(); ++i)
          ASSERT_NEAR(out[i], want[i], 1e-5) << record << " at " << i;
      }
    }
  }
}

TEST(Preprocessing, CifarnetTrainingRefusesImagesThatDoNotFit) {
  const Image image = Pattern(20, 32, 3);
  Rng rng(1, RngPurpose::kAugment);
  std::vector<float> out(32 * 32 * 3);
  EXPECT_EQ(TextOf<DataError>([&] {
              PreprocessCifarnetTrain(
                  {.image = image.view(), .height = 32, .width = 32, .out = out, .rng = &rng});
            }),
            "[io.preprocessing] cifarnet: image too small: got 20x32, want at least 24x24");
}

TEST(Preprocessing, UnknownNameListsTheTable) {
  EXPECT_THAT(TextOf<UsageError>([] { FindPreprocessing("lennet"); }),
              testing::HasSubstr("got 'lennet', want one of lenet, cifarnet"));
}

}  // namespace
}  // namespace carole::io
