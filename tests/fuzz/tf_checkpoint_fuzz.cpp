// Fuzzes TensorFlow's checkpoints, V1 and V2, and the file `checkpoint`. For V2 the same bytes
// serve as index and as data.
#include <vector>

#include "io/tensorflow/tf_checkpoint.h"
#include "io/tensorflow/tf_checkpoint_state.h"
#include "tests/fuzz/fuzz.h"

namespace {

void ReadAll(const carole::io::WeightsSource& reader) {
  for (const std::string& name : reader.names()) {
    carole::fuzz::Run<carole::DataError>([&] {
      std::vector<float> values(static_cast<size_t>(reader.shape(name).size()));
      reader.Read(name, values);
      (void)reader.variable_name(name);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto source = [&] { return carole::fuzz::ToSource(data, size); };
  carole::fuzz::Run<carole::DataError>([&] {
    carole::io::ParseCheckpointState({reinterpret_cast<const char*>(data), size});
  });
  carole::fuzz::Run<carole::DataError>([&] {
    ReadAll(*carole::io::ParseTfCheckpoint("input", source(),
                                           [&](int64_t, int64_t) { return source(); }));
  });
  return carole::fuzz::Run<carole::DataError>([&] {
    std::vector<std::unique_ptr<carole::Source>> tables;
    tables.push_back(source());
    ReadAll(*carole::io::ParseTfV1Checkpoint("input", std::move(tables)));
  });
}
