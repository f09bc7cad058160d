#include "io/preprocessing/preprocessing.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/image/color.h"
#include "io/image/resize.h"
#include "io/preprocessing/distortion.h"
#include "tests/io/damage.h"
#include "tests/support/test_data.h"

namespace carole::io {
namespace {

const std::filesystem::path kData = TestData();

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

// The allowed difference to TensorFlow's float32 results. These contain a few rounding errors of
// values in the range of the preprocessing.
double ToleranceOf(const std::string& preprocessing) {
  if (preprocessing == "lenet") return 0;        // exact
  if (preprocessing == "cifarnet") return 5e-6;  // TensorFlow sums mean and deviation in float32
  return preprocessing == "vgg" ? 2e-5 : 5e-7;   // values of up to 256, of up to 1
}

void ExpectEvaluation(const nlohmann::json& entry, const std::string& preprocessing, int size,
                      int channels) {
  SCOPED_TRACE(preprocessing + " " + std::string(entry["file"]));
  const std::string bytes = ReadText(kData / "io_images" / std::string(entry["file"]));
  LazyImage lazy_image;
  lazy_image.Open(bytes, {.channels = channels});
  std::vector<float> out(static_cast<size_t>(size) * size * channels, NAN);
  FindPreprocessing(preprocessing)
      .eval({.image = lazy_image, .height = size, .width = size, .out = out});
  for (const auto& sample : entry["samples"])
    EXPECT_NEAR(out[sample[0]], float{sample[1]}, ToleranceOf(preprocessing));
  const double range = preprocessing == "vgg" ? 255 : 1;
  EXPECT_NEAR(MomentsOf(out).mean, double{entry["mean"]}, 1e-6 * range);
  EXPECT_NEAR(MomentsOf(out).deviation, double{entry["std"]}, 1e-6 * range);
}

// Outputs recorded from TF-Slim's own evaluation preprocessing of decoded JPEGs.
TEST(Preprocessing, EvaluationEqualsTensorFlow) {
  const auto golden = nlohmann::json::parse(ReadText(kData / "io_preprocessing.json"));
  for (const auto& entry : golden["outputs"])
    ExpectEvaluation(entry, entry["prep"], entry["size"], entry["channels"]);
  EXPECT_EQ(golden["outputs"].size(), 60u);
}

TEST(Preprocessing, ImagenetResnetEvaluationEqualsTensorFlow) {
  const auto golden =
      nlohmann::json::parse(ReadText(kData / "io_preprocessing_imagenet_resnet.json"));
  for (const auto& entry : golden["outputs"]) ExpectEvaluation(entry, "imagenet_resnet", 224, 3);
  EXPECT_EQ(golden["outputs"].size(), 10u);
  for (const auto& row : golden["resize_h_w_side_newh_neww"]) {
    const ScaledCrop crop = ScaleShorterSide(row[0], row[1], row[2], SideRounding::kTruncate);
    EXPECT_EQ(crop.height, row[3]) << row;
    EXPECT_EQ(crop.width, row[4]) << row;
  }
}

// An image whose bytes differ from pixel to pixel.
Image Pattern(int height, int width, int channels) {
  Image image;
  AllocateImage("test", height, width, channels, &image);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(i * 29 + i / 5);
  return image;
}

TEST(Preprocessing, LenetPadsWithMinusOne) {
  const Image image = Pattern(1, 3, 1);
  LazyImage lazy_image(image.view());
  std::vector<float> out(4 * 4, NAN);
  PreprocessLenet({.image = lazy_image, .height = 4, .width = 4, .out = out});
  // Three rows and one column are missing. One row is added before the image, the rest after it.
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) {
      EXPECT_EQ(out[y * 4 + x], y == 1 && x < 3 ? (image.pixels[x] - 128) / 128.0f : -1.0f)
          << y << "," << x;
    }
  }
}

TEST(Preprocessing, ConstantImageIsNotDividedByZero) {
  Image image;
  AllocateImage("test", 32, 32, 3, &image);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{200});
  std::vector<float> out(32 * 32 * 3, NAN);
  LazyImage lazy_image(image.view());
  PreprocessCifarnetEval({.image = lazy_image, .height = 32, .width = 32, .out = out});
  for (float v : out) EXPECT_NEAR(v, 0, 1e-3);
}

// The reference converts pixels to gray first, as evaluation in TF-Slim does. Then it applies the
// steps of each preprocessing.
TEST(Preprocessing, GrayEqualsThatOfThePixels) {
  constexpr int kSide = 8;  // input and output have the same size, so nothing is resized
  const Image image = Pattern(kSide, kSide, 3);
  std::vector<double> gray;
  double mean = 0, squares = 0;
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const uint8_t* rgb = &image.pixels[i];
    gray.push_back(0.2989 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]);
    mean += gray.back() / (kSide * kSide);
  }
  for (const double g : gray) squares += (g - mean) * (g - mean) / (kSide * kSide);
  const auto expect = [&](std::string_view name, double subtract, double divide) {
    const PreprocessingEntry& entry = FindPreprocessing(name);
    LazyImage lazy_image(image.view());
    std::vector<float> out(kSide * kSide, NAN);
    Preprocess(entry, entry.eval,
               {.image = lazy_image, .height = kSide, .width = kSide, .out = out});
    for (size_t i = 0; i < out.size(); ++i)
      EXPECT_NEAR(out[i], (gray[i] - subtract) / divide, 1e-6) << name << " " << i;
  };
  expect("lenet", 128, 128);
  expect("inception", 127.5, 127.5);
  expect("mnist_keras", 0, 255);
  expect("cifarnet", mean, std::sqrt(squares));
}

// Rounding errors must not be amplified to a visible pattern.
TEST(Preprocessing, GrayOfAConstantImageIsZero) {
  constexpr uint8_t kColor[] = {200, 100, 7};
  Image image{.height = 32, .width = 32, .channels = 3};
  for (int i = 0; i < 32 * 32 * 3; ++i) image.pixels.push_back(kColor[i % 3]);
  LazyImage lazy_image(image.view());
  std::vector<float> out(32 * 32, NAN);
  Preprocess(FindPreprocessing("cifarnet"), PreprocessCifarnetEval,
             {.image = lazy_image, .height = 32, .width = 32, .out = out});
  for (const float v : out) EXPECT_NEAR(v, 0, 1e-3);
}

// Reference: TF-Slim's steps one after the other, each with an intermediate image. The draws are in
// the same order as in DrawCifarnetDistortion().
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
        LazyImage lazy_image(image.view());
        PreprocessCifarnetTrain(
            {.image = lazy_image, .height = 32, .width = 32, .out = out, .rng = &rng});
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
  LazyImage lazy_image(image.view());
  EXPECT_EQ(TextOf<DataError>([&] {
              PreprocessCifarnetTrain(
                  {.image = lazy_image, .height = 32, .width = 32, .out = out, .rng = &rng});
            }),
            "[io.preprocessing] cifarnet: image too small: got 20x32, want at least 24x24");
}

TEST(Preprocessing, MnistKerasScalesToUnitRange) {
  const Image image = Pattern(28, 28, 1);
  LazyImage lazy_image(image.view());
  std::vector<float> out(28 * 28, NAN);
  PreprocessMnistKeras({.image = lazy_image, .height = 28, .width = 28, .out = out});
  for (size_t i = 0; i < out.size(); ++i) EXPECT_FLOAT_EQ(out[i], image.pixels[i] / 255.0f);
}

TEST(Preprocessing, MnistKerasResizesImagesOfOtherSizes) {
  const Image image = Pattern(28, 28, 1);
  Image large{.height = 56, .width = 84, .channels = 1};
  for (int y = 0; y < large.height; ++y) {
    for (int x = 0; x < large.width; ++x)
      large.pixels.push_back(image.pixels[y / 2 * image.width + x / 3]);
  }
  LazyImage lazy_image(large.view());
  std::vector<float> out(28 * 28, NAN);
  PreprocessMnistKeras({.image = lazy_image, .height = 28, .width = 28, .out = out});
  for (size_t i = 0; i < out.size(); ++i) EXPECT_FLOAT_EQ(out[i], image.pixels[i] / 255.0f);
}

void Mirror(FloatImage& image) {
  const FloatImage from = image;
  for (size_t i = 0; i < image.values.size(); ++i) {
    const size_t c = i % image.channels;
    const size_t x = i / image.channels % image.width;
    const size_t row = i / image.channels / image.width;
    image.values[i] = from.values[(row * image.width + image.width - 1 - x) * image.channels + c];
  }
}

// Reference: the steps of TF-Slim's vgg_preprocessing, each with an intermediate image. It resizes
// the whole image, crops, mirrors, then subtracts the means.
std::vector<float> VggStepByStep(const Image& image, const ScaledCrop& crop, int size, float unit) {
  const FloatImage resized =
      Resize(ToFloats(image.view(), unit), crop.height, crop.width, ResizeMethod::kBilinear);
  FloatImage cut{.height = size, .width = size, .channels = 3};
  for (int y = 0; y < size; ++y) {
    for (int i = 0; i < size * 3; ++i)
      cut.values.push_back(
          resized.values[(static_cast<size_t>(crop.top + y) * crop.width + crop.left) * 3 + i]);
  }
  if (crop.mirrored) Mirror(cut);
  constexpr double kMeans[] = {123.68, 116.78, 103.94};
  for (size_t i = 0; i < cut.values.size(); ++i)
    cut.values[i] -= static_cast<float>(kMeans[i % 3] * unit);
  return cut.values;
}

TEST(Preprocessing, VggTrainingEqualsItsStepsOneByOne) {
  const std::string bytes = ReadText(kData / "io_images/landscape_420.jpg");
  Image image;
  DecodeJpeg(bytes, 3, &image);
  LazyImage lazy_image;
  std::vector<float> out(224 * 224 * 3);
  for (uint64_t record = 0; record < 12; ++record) {
    for (const bool slim : {true, false}) {
      const SideRounding rounding = slim ? SideRounding::kHalfEven : SideRounding::kTruncate;
      Rng rng(1, RngPurpose::kAugment, 0, record);
      lazy_image.Open(bytes, {});
      FindPreprocessing(slim ? "vgg" : "imagenet_resnet")
          .train({.image = lazy_image, .height = 224, .width = 224, .out = out, .rng = &rng});
      Rng same(1, RngPurpose::kAugment, 0, record);
      const auto crop = DrawScaledCrop(image.height, image.width, 224, 224, rounding, same);
      const float unit = slim ? 1.0f : 1.0f / 255.0f;
      const std::vector<float> want = VggStepByStep(image, crop, 224, unit);
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_NEAR(out[i], want[i], 1e-4 * unit) << record << " at " << i;
    }
  }
}

// Reference for the fused pass: one operation after the other on the whole decoded image.
std::vector<float> InceptionStepByStep(const Image& image, const InceptionDistortion& d, int size) {
  LazyImage whole(image.view());
  FloatImage x = Resize(ToFloats(whole.Decode(d.crop), 1.0f / 255.0f), size, size,
                        static_cast<ResizeMethod>(d.resize_method));
  if (d.mirrored) Mirror(x);
  AdjustBrightness(x, d.color.brightness);
  AdjustSaturation(x, d.color.saturation);
  ClipToUnit(x);
  for (float& value : x.values) value = (value - 0.5f) * 2.0f;
  return x.values;
}

TEST(Preprocessing, InceptionTrainingEqualsItsStepsOneByOne) {
  const std::string bytes = ReadText(kData / "io_images/wide_422.jpg");
  Image image;
  DecodeJpeg(bytes, 3, &image);
  LazyImage lazy_image;
  std::vector<float> out(99 * 99 * 3);
  for (uint64_t record = 0; record < 25; ++record) {
    Rng rng(1, RngPurpose::kAugment, 0, record);
    lazy_image.Open(bytes, {});
    PreprocessInceptionTrain(
        {.image = lazy_image, .height = 99, .width = 99, .out = out, .rng = &rng});
    Rng same(1, RngPurpose::kAugment, 0, record);
    const auto d = DrawInceptionDistortion(image.height, image.width, {}, true, same);
    const std::vector<float> want = InceptionStepByStep(image, d, 99);
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], want[i], 3e-6) << record << " at " << i;
  }
}

TEST(Preprocessing, InceptionSlowModeVariesAndStaysInRange) {
  const std::string bytes = ReadText(kData / "io_images/portrait_444.jpg");
  LazyImage lazy_image;
  std::vector<float> out(31 * 31 * 3);
  std::vector<std::vector<float>> different;
  for (uint64_t record = 0; record < 40; ++record) {
    Rng rng(1, RngPurpose::kAugment, 0, record);
    lazy_image.Open(bytes, {});
    std::fill(out.begin(), out.end(), NAN);
    PreprocessInceptionTrain({.image = lazy_image,
                              .height = 31,
                              .width = 31,
                              .out = out,
                              .rng = &rng,
                              .fast_mode = false});
    for (float value : out) ASSERT_TRUE(value >= -1 && value <= 1) << value;
    if (std::find(different.begin(), different.end(), out) == different.end())
      different.push_back(out);
  }
  EXPECT_EQ(different.size(), 40u);
}

TEST(Preprocessing, InceptionDistortsOnlyTheBrightnessOfGrayImages) {
  const Image image = Pattern(40, 30, 1);
  std::vector<float> out(20 * 20, NAN);
  LazyImage lazy_image(image.view());
  Rng rng(1, RngPurpose::kAugment, 0, 3);
  PreprocessInceptionTrain(
      {.image = lazy_image, .height = 20, .width = 20, .out = out, .rng = &rng});
  Rng same(1, RngPurpose::kAugment, 0, 3);
  const auto d = DrawInceptionDistortion(40, 30, {}, true, same);
  LazyImage again(image.view());
  FloatImage want =
      Resize(ToFloats(again.Decode(d.crop), 1.0f / 255.0f), 20, 20, ResizeMethod::kBilinear);
  if (d.mirrored) Mirror(want);
  for (size_t i = 0; i < out.size(); ++i) {
    const float value = std::clamp(want.values[i] + d.color.brightness, 0.0f, 1.0f);
    EXPECT_NEAR(out[i], (value - 0.5f) * 2.0f, 1e-6);
  }
}

TEST(Preprocessing, VggRefusesSizesThatDoNotFit) {
  EXPECT_EQ(
      TextOf<UsageError>([] { CheckPreprocessingSize(FindPreprocessing("vgg"), 299, 299); }),
      "[io.preprocessing] vgg: image size too large for this preprocessing: got 299x299, want at "
      "most 256 on each side; the crop must fit an image whose shorter side is 256");
  CheckPreprocessingSize(FindPreprocessing("vgg"), 256, 256);
  CheckPreprocessingSize(FindPreprocessing("inception"), 331, 331);
}

TEST(Preprocessing, ErrorForUnknownNameListsTheNames) {
  EXPECT_THAT(TextOf<UsageError>([] { FindPreprocessing("lennet"); }),
              testing::HasSubstr("got 'lennet', want one of lenet, cifarnet"));
}

}  // namespace
}  // namespace carole::io
