// Fuzzes IDX files of images and labels, plain and compressed.
#include "io/datasets/idx.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto source = [&] { return carole::fuzz::ToSource(data, size); };
  carole::fuzz::Run<carole::DataError>([&] { carole::io::ReadIdxImages(source()); });
  return carole::fuzz::Run<carole::DataError>([&] { carole::io::ReadIdxLabels(source()); });
}
