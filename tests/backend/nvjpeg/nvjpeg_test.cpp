// Tests decoding with nvJPEG. Most tests use fake libraries of nvJPEG and of the driver
// (tests/support/fake_gpu), which decode with libjpeg's accurate DCT. One test uses the real
// libraries if there is a GPU.
#include "src/backend/nvjpeg/nvjpeg.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>

#include "io/image/jpeg.h"
#include "src/core/error.h"
#include "tests/io/image/jpeg_encoding.h"

namespace carole::gpu_jpeg {
namespace {

using io::DctMethod;
using io::Encode;
using io::Encoding;
using io::Image;
using io::JpegDecoder;
using io::Region;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::string kFolder = CAROLE_FAKE_GPU;
const NvJpegLibraries kFakes{.nvjpeg = {kFolder + "/libnvjpeg.so.13"},
                             .driver = kFolder + "/libcuda.so.1"};

// Reads a counter of a fake library.
int ReadCounter(const std::string& library, const char* function) {
  void* handle = dlopen(library.c_str(), RTLD_NOW);
  return reinterpret_cast<int (*)()>(dlsym(handle, function))();
}
// The number of images whose header was read, of decoded images, and of existing objects.
int HeadersRead() { return ReadCounter(kFakes.nvjpeg[0], "FakeNvjpegAsked"); }
int Decoded() { return ReadCounter(kFakes.nvjpeg[0], "FakeNvjpegDecoded"); }
int Objects() { return ReadCounter(kFakes.driver, "FakeGpuObjects"); }

// Sets an environment variable while the object exists.
class SetVariable {
 public:
  SetVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~SetVariable() { unsetenv(name_); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  const char* const name_;
};

Image DecodeBy(const NvJpeg* nvjpeg, const std::string& bytes, const Region& window,
               int channels = 3, DctMethod dct = DctMethod::kIntegerFast) {
  JpegDecoder decoder;
  Image image;
  decoder.Open(bytes, {.channels = channels, .dct_method = dct, .decoder_factory = nvjpeg});
  decoder.Decode(window, &image);
  return image;
}

Region All(int height, int width) { return {.height = height, .width = width}; }

TEST(NvJpeg, DecodesRegionsOfColorJpegs) {
  const NvJpeg nvjpeg(0, kFakes);
  const int before = Decoded();
  for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
    const std::string bytes = Encode(75, 133, {.horizontal = horizontal, .vertical = vertical});
    for (const Region& window :
         {All(75, 133), Region{.top = 10, .left = 21, .height = 40, .width = 7},
          Region{.top = 74, .left = 132, .height = 1, .width = 1}}) {
      const Image got = DecodeBy(&nvjpeg, bytes, window);
      EXPECT_EQ(got.pixels,
                DecodeBy(nullptr, bytes, window, 3, DctMethod::kIntegerAccurate).pixels);
      EXPECT_EQ(got.height, window.height);
    }
    EXPECT_NE(DecodeBy(&nvjpeg, bytes, All(75, 133)).pixels,
              DecodeBy(nullptr, bytes, All(75, 133)).pixels)
        << "the CPU's fast DCT gives other pixels";
  }
  EXPECT_EQ(Decoded() - before, 12);
}

TEST(NvJpeg, DecodesBaselineColorOnly) {
  const NvJpeg nvjpeg(0, kFakes);
  const int before = HeadersRead();
  const Encoding gray{.in = JCS_GRAYSCALE, .file = JCS_GRAYSCALE, .components = 1};
  const Encoding cmyk{.in = JCS_CMYK, .file = JCS_CMYK, .components = 4};
  const Encoding rgb{.file = JCS_RGB};
  const Encoding odd{.horizontal = 4, .vertical = 1};
  for (const Encoding& encoding : {Encoding{.progressive = true}, gray, cmyk, rgb, odd}) {
    const std::string bytes = Encode(40, 50, encoding);
    EXPECT_EQ(DecodeBy(&nvjpeg, bytes, All(40, 50)).pixels,
              DecodeBy(nullptr, bytes, All(40, 50)).pixels);
  }
  const std::string color = Encode(40, 50, {});
  EXPECT_EQ(DecodeBy(&nvjpeg, color, All(40, 50), 1).pixels,
            DecodeBy(nullptr, color, All(40, 50), 1).pixels);
  std::string arithmetic = color;
  arithmetic.at(arithmetic.find("\xff\xc0") + 1) = '\xc9';
  try {
    DecodeBy(&nvjpeg, arithmetic, All(40, 50));
  } catch (const DataError&) {  // the data are Huffman codes, so libjpeg may fail
  }
  EXPECT_EQ(HeadersRead(), before);
}

// A status is taken for an error of the image unless the driver reports an error of the GPU.
TEST(NvJpeg, CpuDecodesWhatNvjpegRefuses) {
  const NvJpeg nvjpeg(0, kFakes);
  const int before = Decoded();
  const std::string bytes = Encode(40, 50, {});
  const std::vector<uint8_t> wanted = DecodeBy(nullptr, bytes, All(40, 50)).pixels;
  for (const char* function : {"FAKE_NVJPEG_STATUS", "FAKE_NVJPEG_INFO_STATUS"}) {
    for (const char* status : {"2", "3", "4", "5", "6", "9", "10"}) {
      const SetVariable refuses(function, status);
      EXPECT_EQ(DecodeBy(&nvjpeg, bytes, All(40, 50)).pixels, wanted) << function << status;
    }
  }
  EXPECT_EQ(Decoded(), before);
}

TEST(NvJpeg, CpuDecodesIfMemoryIsShort) {
  const NvJpeg nvjpeg(0, kFakes);
  const std::string small = Encode(40, 50, {}), large = Encode(1400, 1100, {});  // over 4 MB
  const Region window = All(1400, 1100);
  const std::vector<uint8_t> wanted = DecodeBy(nullptr, large, window).pixels;
  const std::vector<uint8_t> wanted_of_small =
      DecodeBy(nullptr, small, All(40, 50), 3, DctMethod::kIntegerAccurate).pixels;
  for (const char* function : {"cuMemAlloc", "cuMemHostAlloc"}) {
    JpegDecoder decoder;
    Image image;
    const auto decode = [&](const std::string& bytes, const Region& all) {
      decoder.Open(bytes, {.decoder_factory = &nvjpeg});
      decoder.Decode(all, &image);
      return image.pixels;
    };
    EXPECT_EQ(decode(small, All(40, 50)), wanted_of_small);
    {
      const SetVariable full("FAKE_CUDA_FULL", function);
      EXPECT_EQ(decode(large, window), wanted) << function;
    }
    EXPECT_EQ(decode(small, All(40, 50)), wanted_of_small) << "there is memory again";
  }
}

TEST(NvJpeg, WorksWithoutInterpolationOnOldVersions) {
  const SetVariable old("FAKE_NVJPEG_OLD", "1");
  const NvJpeg nvjpeg(0, kFakes);
  const int before = Decoded();
  DecodeBy(&nvjpeg, Encode(40, 50, {}), All(40, 50));
  EXPECT_EQ(Decoded() - before, 1);
}

TEST(NvJpeg, LibjpegDecidesWhatIsDamaged) {
  const NvJpeg nvjpeg(0, kFakes);
  const std::string bytes = Encode(40, 50, {});
  EXPECT_THAT([&] { DecodeBy(&nvjpeg, bytes.substr(0, bytes.size() / 2), All(40, 50)); },
              ThrowsMessage<DataError>(HasSubstr("truncated")));
}

TEST(NvJpeg, ThrowsIfTheGpuFails) {
  const NvJpeg nvjpeg(0, kFakes);
  const std::string bytes = Encode(40, 50, {});
  const auto decode = [&] { DecodeBy(&nvjpeg, bytes, All(40, 50)); };
  const SetVariable fails("FAKE_CUDA_STATUS", "719");
  EXPECT_THAT(decode, ThrowsMessage<DeviceError>(
                          HasSubstr("[io.nvjpeg] cuEventSynchronize: CUDA_ERROR_OF_A_FAKE")));
  for (const auto& [variable, call] : {std::pair{"FAKE_NVJPEG_STATUS", "nvjpegDecode"},
                                       {"FAKE_NVJPEG_INFO_STATUS", "nvjpegGetImageInfo"}}) {
    const SetVariable refuses(variable, "6");
    EXPECT_THAT(
        decode,
        ThrowsMessage<DeviceError>(AllOf(
            HasSubstr(std::string(call) + ": status 6, cuStreamSynchronize: CUDA_ERROR_OF_A_FAKE"),
            HasSubstr("\x1f$(jpeg_decoder)=cpu"))));
  }
}

TEST(NvJpeg, EachThreadHasItsOwnDecoder) {
  const NvJpeg nvjpeg(3, kFakes);  // there are fewer GPUs: the number is taken modulo
  const int before = Decoded();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      JpegDecoder decoder;
      for (int i = 0; i < 25; ++i) {
        const int height = 16 + 9 * ((i + t) % 7), width = 20 + 5 * ((3 * i + t) % 11);
        const std::string bytes = Encode(height, width, {});
        Image got;
        decoder.Open(bytes, {.decoder_factory = &nvjpeg});
        decoder.Decode(All(height, width), &got);
        EXPECT_EQ(
            got.pixels,
            DecodeBy(nullptr, bytes, All(height, width), 3, DctMethod::kIntegerAccurate).pixels);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(Decoded() - before, 100);
}

TEST(NvJpeg, ReleasesAllObjects) {
  const int before = Objects();
  {
    const NvJpeg nvjpeg(0, kFakes);
    DecodeBy(&nvjpeg, Encode(40, 50, {}), All(40, 50));
    EXPECT_GT(Objects(), before);
  }
  EXPECT_EQ(Objects(), before);
}

TEST(NvJpeg, DecodersMayEndOnAnotherThread) {
  const NvJpeg nvjpeg(0, kFakes);
  const int before = Objects();
  auto decoder = std::make_unique<JpegDecoder>();
  const auto on_a_thread = [](const auto& work) { std::jthread{work}; };
  on_a_thread([&] {
    const std::string bytes = Encode(40, 50, {});
    Image image;
    decoder->Open(bytes, {.decoder_factory = &nvjpeg});
    decoder->Decode(All(40, 50), &image);
  });
  EXPECT_GT(Objects(), before);
  on_a_thread([&] { decoder.reset(); });
  EXPECT_EQ(Objects(), before);
}

TEST(NvJpeg, NamesWhatIsMissing) {
  const auto make = [](const NvJpegLibraries& libraries) {
    return [=] { const NvJpeg nvjpeg(0, libraries); };
  };
  NvJpegLibraries libraries = kFakes;
  libraries.nvjpeg = {"libnvjpeg.so.none", "libnvjpeg.so.neither"};
  EXPECT_THAT(make(libraries),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("libnvjpeg.so.none: cannot be loaded"),
                                               HasSubstr("LD_LIBRARY_PATH"),
                                               HasSubstr("or use \x1f$(jpeg_decoder)=cpu"))));
  libraries.nvjpeg = {kFakes.driver};  // another library
  EXPECT_THAT(make(libraries), ThrowsMessage<ConfigError>(HasSubstr("nvjpegCreateEx: missing")));
  libraries = kFakes;
  libraries.driver = "libcuda.so.none";
  EXPECT_THAT(make(libraries), ThrowsMessage<ConfigError>(HasSubstr("NVIDIA driver")));
  const SetVariable no_gpu("FAKE_GPU_COUNT", "0");
  EXPECT_THAT(make(kFakes),
              ThrowsMessage<ConfigError>(HasSubstr("no GPU to decode on: CUDA_ERROR_NO_DEVICE")));
}

// The difference between the pixels of two decoders, in levels of 0 to 255.
struct Difference {
  int largest = 0;
  double sum = 0;
  double count = 0;

  void Add(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      const int levels = std::abs(a[i] - b.at(i));
      largest = std::max(largest, levels);
      sum += levels;
    }
    count += static_cast<double>(a.size());
  }
};

// The images have smooth colors. At sharp edges of colors, two ways to interpolate chroma may
// differ by any number of levels.
TEST(NvJpegOnGpu, IsCloseToTheAccurateDct) {
  std::optional<NvJpeg> nvjpeg;
  try {
    nvjpeg.emplace(0);
  } catch (const ConfigError& error) {
    GTEST_SKIP() << "skipped: " << error.what();
  }
  if (dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "FakeGpuObjects") != nullptr)
    GTEST_SKIP() << "skipped: the fake driver is already loaded; run this test alone";
  const std::unique_ptr<io::ImageDecoder> decoder = nvjpeg->MakeDecoder();
  for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
    Difference difference;
    for (const auto& [height, width] : {std::pair{75, 133}, {17, 9}, {375, 500}, {1401, 1099}}) {
      const std::string bytes =
          Encode(height, width, {.horizontal = horizontal, .vertical = vertical, .period = 60});
      for (const Region& window :
           {All(height, width),
            Region{.top = 5, .left = 3, .height = height - 8, .width = width - 4},
            Region{.top = height - 1, .left = width - 1, .height = 1, .width = 1}}) {
        std::vector<uint8_t> got(size_t{3} * window.height * window.width);
        ASSERT_TRUE(decoder->Decode(bytes, height, width, window, got.data()));
        difference.Add(got,
                       DecodeBy(nullptr, bytes, window, 3, DctMethod::kIntegerAccurate).pixels);
      }
    }
    const double mean = difference.sum / difference.count;
    fmt::print("chroma / {}x{}: largest difference {}, mean {:.3f}\n", vertical, horizontal,
               difference.largest, mean);
    EXPECT_LE(difference.largest, 8);
    EXPECT_LT(mean, 1);
  }
}

}  // namespace
}  // namespace carole::gpu_jpeg
