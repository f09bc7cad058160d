// Fuzzes TFRecord framing, plain and compressed.
#include "io/records/tfrecord.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return carole::fuzz::Run<carole::DataError>([&] {
    const auto source = carole::io::OpenRecords(carole::fuzz::ToSource(data, size));
    carole::io::TfRecordReader reader(*source);
    while (reader.Next()) {
    }
  });
}
