// Fuzzes Slurm's lists of nodes and of task counts.
#include "launch/cluster/slurm.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = carole::fuzz::ToText(data, size);
  carole::fuzz::Run<carole::ConfigError>([&] { carole::launch::ExpandNodeList("nodes", text); });
  return carole::fuzz::Run<carole::ConfigError>(
      [&] { carole::launch::ExpandCounts("tasks", text); });
}
