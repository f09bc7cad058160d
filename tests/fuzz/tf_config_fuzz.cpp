// Fuzzes TF_CONFIG.
#include "launch/cluster/tf_config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > carole::launch::kMaxTfConfigBytes) return 0;
  return carole::fuzz::Run<carole::ConfigError>(
      [&] { carole::launch::ParseTfConfig(carole::fuzz::ToText(data, size), 0); });
}
