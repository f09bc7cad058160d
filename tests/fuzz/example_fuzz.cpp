// Fuzzes tf.train.Example: every list of every feature, and CheckExample(), which verifies records.
#include "io/datasets/verify.h"
#include "io/image/image.h"
#include "io/records/example.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace io = carole::io;
  const std::string_view bytes = carole::fuzz::ToText(data, size);
  carole::fuzz::Run<carole::DataError>([&] {
    io::Image image;
    io::CheckExample(bytes, nullptr, 0, &image);
  });
  return carole::fuzz::Run<carole::DataError>([&] {
    for (const io::FeatureQuery& feature : io::ListFeatures(bytes)) {
      carole::fuzz::Run<carole::DataError>([&] { io::AllBytes(feature); });
      carole::fuzz::Run<carole::DataError>([&] { io::AllInt64(feature); });
      carole::fuzz::Run<carole::DataError>([&] { io::AllFloats(feature); });
    }
  });
}
