// Pictures: the glue around libjpeg and libpng, to grey and to colour.
#include "io/image.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const int channels : {1, 3}) {
    carole::fuzz::Run<carole::DataError>([&] {
      carole::io::Image image;
      carole::io::DecodeImage(carole::fuzz::ToText(data, size), channels, &image);
    });
  }
  return 0;
}
