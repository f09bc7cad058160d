// Fuzzes Keras's mnist.npz: the archive, and a single .npy array, because the archive's checksums
// reject mutated members.
#include "io/archives/npz.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace io = carole::io;
  const auto expected = [](auto&& parse) { carole::fuzz::Run<carole::DataError>(parse); };
  expected([&] { io::ParseNpy("input", std::string(carole::fuzz::ToText(data, size)), 3); });
  expected([&] {
    const io::NpzFile file(carole::fuzz::ToSource(data, size));
    expected([&] { file.Read("x_train", 3); });
    expected([&] { file.Read("y_train", 1); });
  });
  return 0;
}
