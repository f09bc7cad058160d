// Fuzzes XML and the bounding boxes in it.
#include "io/archives/xml.h"
#include "io/datasets/imagenet/bounding_boxes.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return carole::fuzz::Run<carole::DataError>(
      [&] { carole::io::AnnotatedBoxes(carole::fuzz::ToText(data, size), "input", "n01440764"); });
}
