// Decoding by nvJPEG, on libraries that stand in for it and for the driver (tests/support/fake_gpu)
// and decode as libjpeg's accurate DCT does.
#include "io/jpeg/nvjpeg.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <thread>

#include "io/jpeg.h"
#include "src/core/error.h"
#include "tests/io/jpeg_encoding.h"

namespace carole::io::jpeg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::string kFolder = CAROLE_FAKE_GPU;
const NvJpegLibraries kFakes{.nvjpeg = {kFolder + "/libnvjpeg.so.13"},
                             .driver = kFolder + "/libcuda.so.1"};

// What a fake library counts.
int Ask(const std::string& library, const char* function) {
  void* handle = dlopen(library.c_str(), RTLD_NOW);
  return reinterpret_cast<int (*)()>(dlsym(handle, function))();
}
int Decoded() { return Ask(kFakes.nvjpeg[0], "FakeNvjpegDecoded"); }
int Objects() { return Ask(kFakes.driver, "FakeGpuObjects"); }

// A variable of the environment, while this lives.
class SetVariable {
 public:
  SetVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~SetVariable() { unsetenv(name_); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  const char* const name_;
};

Image DecodeBy(const NvJpeg* nvjpeg, const std::string& bytes, const Window& window,
               int channels = 3, DctMethod dct = DctMethod::kIntegerFast) {
  JpegDecoder decoder;
  Image image;
  decoder.Open(bytes, {.channels = channels, .dct_method = dct, .nvjpeg = nvjpeg});
  decoder.Decode(window, &image);
  return image;
}

Window All(int height, int width) { return {.height = height, .width = width}; }

TEST(NvJpeg, DecodesWindowsOfColourJpegs) {
  const NvJpeg nvjpeg(0, kFakes);
  const int before = Decoded();
  for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
    const std::string bytes = Encode(75, 133, {.horizontal = horizontal, .vertical = vertical});
    for (const Window& window :
         {All(75, 133), Window{.top = 10, .left = 21, .height = 40, .width = 7},
          Window{.top = 74, .left = 132, .height = 1, .width = 1}}) {
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

TEST(NvJpeg, LeavesTheRestToTheCpu) {
  const NvJpeg nvjpeg(0, kFakes);
  const int before = Decoded();
  const Encoding grey{.in = JCS_GRAYSCALE, .file = JCS_GRAYSCALE, .components = 1};
  const Encoding cmyk{.in = JCS_CMYK, .file = JCS_CMYK, .components = 4};
  const Encoding rgb{.file = JCS_RGB};
  for (const Encoding& encoding : {Encoding{.progressive = true}, grey, cmyk, rgb}) {
    const std::string bytes = Encode(40, 50, encoding);
    EXPECT_EQ(DecodeBy(&nvjpeg, bytes, All(40, 50)).pixels,
              DecodeBy(nullptr, bytes, All(40, 50)).pixels);
  }
  const std::string colour = Encode(40, 50, {});
  EXPECT_EQ(DecodeBy(&nvjpeg, colour, All(40, 50), 1).pixels,
            DecodeBy(nullptr, colour, All(40, 50), 1).pixels);
  for (const char* status : {"3", "4", "9", "10"}) {
    const SetVariable refuses("FAKE_NVJPEG_STATUS", status);
    EXPECT_EQ(DecodeBy(&nvjpeg, colour, All(40, 50)).pixels,
              DecodeBy(nullptr, colour, All(40, 50)).pixels);
  }
  EXPECT_EQ(Decoded(), before);
}

TEST(NvJpeg, LibjpegDecidesWhatIsDamaged) {
  const NvJpeg nvjpeg(0, kFakes);
  const std::string bytes = Encode(40, 50, {});
  EXPECT_THAT([&] { DecodeBy(&nvjpeg, bytes.substr(0, bytes.size() / 2), All(40, 50)); },
              ThrowsMessage<DataError>(HasSubstr("truncated")));
}

TEST(NvJpeg, FailuresOfTheGpuAreErrors) {
  const NvJpeg nvjpeg(0, kFakes);
  const std::string bytes = Encode(40, 50, {});
  const SetVariable fails("FAKE_NVJPEG_STATUS", "6");
  EXPECT_THAT([&] { DecodeBy(&nvjpeg, bytes, All(40, 50)); },
              ThrowsMessage<DeviceError>(
                  AllOf(HasSubstr("nvjpegDecode: status 6"), HasSubstr("--jpeg_decoder=cpu"))));
}

TEST(NvJpeg, ThreadsHaveDecodersOfTheirOwn) {
  const NvJpeg nvjpeg(3, kFakes);  // more than there are: modulo
  const int before = Decoded();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      JpegDecoder decoder;
      for (int i = 0; i < 25; ++i) {
        const int height = 16 + 9 * ((i + t) % 7), width = 20 + 5 * ((3 * i + t) % 11);
        const std::string bytes = Encode(height, width, {});
        Image got;
        decoder.Open(bytes, {.nvjpeg = &nvjpeg});
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

TEST(NvJpeg, LeavesNothingBehind) {
  const int before = Objects();
  {
    const NvJpeg nvjpeg(0, kFakes);
    DecodeBy(&nvjpeg, Encode(40, 50, {}), All(40, 50));
    EXPECT_GT(Objects(), before);
  }
  EXPECT_EQ(Objects(), before);
}

TEST(NvJpeg, SaysWhatIsMissing) {
  const auto make = [](const NvJpegLibraries& libraries) {
    return [=] { const NvJpeg nvjpeg(0, libraries); };
  };
  NvJpegLibraries libraries = kFakes;
  libraries.nvjpeg = {"libnvjpeg.so.none", "libnvjpeg.so.neither"};
  EXPECT_THAT(make(libraries),
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("libnvjpeg.so.none: cannot be loaded"),
                                               HasSubstr("LD_LIBRARY_PATH"),
                                               HasSubstr("or use --jpeg_decoder=cpu"))));
  libraries.nvjpeg = {kFakes.driver};  // another library
  EXPECT_THAT(make(libraries), ThrowsMessage<ConfigError>(HasSubstr("nvjpegCreateEx: missing")));
  libraries = kFakes;
  libraries.driver = "libcuda.so.none";
  EXPECT_THAT(make(libraries), ThrowsMessage<ConfigError>(HasSubstr("NVIDIA's driver")));
  const SetVariable no_gpu("FAKE_GPU_COUNT", "0");
  EXPECT_THAT(make(kFakes),
              ThrowsMessage<ConfigError>(HasSubstr("no GPU to decode on: CUDA_ERROR_NO_DEVICE")));
}

}  // namespace
}  // namespace carole::io::jpeg
