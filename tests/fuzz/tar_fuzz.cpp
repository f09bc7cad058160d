// Fuzzes tar archives, plain and compressed. Each file in an archive is also read as an archive.
#include "io/archives/inflate.h"
#include "io/archives/tar.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace io = carole::io;
  return carole::fuzz::Run<carole::DataError>([&] {
    const auto source = io::InflateIfGzip(carole::fuzz::ToSource(data, size));
    io::TarReader reader(*source);
    while (const auto file = reader.Next()) {
      if (file->bytes == 0 || !source->size()) continue;
      carole::fuzz::Run<carole::DataError>([&] {
        io::TarReader inner(*source, file->offset, file->offset + file->bytes);
        while (inner.Next()) {
        }
      });
    }
  });
}
