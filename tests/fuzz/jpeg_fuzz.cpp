// Fuzzes image decoding with libjpeg and libpng, to gray and to color. Also compares io/image/jpeg
// with libjpeg: both must give the same pixels or the same error.
#include <string>
#include <vector>

#include "io/image/image.h"
#include "io/image/jpeg.h"
#include "tests/fuzz/fuzz.h"

namespace {

// A few bytes may claim a large image, and decoding it several times takes libjpeg too long.
constexpr int64_t kMaxPixels = 1 << 18;

struct Outcome {
  std::vector<uint8_t> pixels;
  std::string error;
};

Outcome DecodeMiddle(std::string_view bytes, const carole::io::JpegOptions& options,
                     int divisor = 1) {
  Outcome outcome;
  try {
    carole::io::JpegDecoder decoder;
    decoder.Open(bytes, options);
    if (int64_t{decoder.height()} * decoder.width() > kMaxPixels) return outcome;
    const int height = (decoder.height() + divisor - 1) / divisor;
    const int width = (decoder.width() + divisor - 1) / divisor;
    carole::io::Image image;
    decoder.Decode({.top = height / 3,
                    .left = width / 4,
                    .height = height - height / 3 - height / 5,
                    .width = width - width / 4 - width / 5},
                   &image, divisor);
    outcome.pixels = image.pixels;
  } catch (const carole::DataError& error) {
    outcome.error = error.what();
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = carole::fuzz::ToText(data, size);
  for (const int channels : {1, 3}) {
    carole::fuzz::Run<carole::DataError>([&] {
      carole::io::Image image;
      carole::io::DecodeImage(bytes, channels, &image);
    });
    if (!carole::io::IsJpeg(bytes)) continue;
    const Outcome own = DecodeMiddle(bytes, {.channels = channels});
    const Outcome wanted = DecodeMiddle(bytes, {.channels = channels, .only_libjpeg = true});
    if (own.pixels != wanted.pixels || own.error != wanted.error) __builtin_trap();
    DecodeMiddle(bytes, {.channels = channels},
                 1 << size % 4);  // at 1, 1/2, 1/4 or 1/8 of the size
  }
  return 0;
}
