#include "collectives/wire_choice.h"

#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::collectives {

DType ChooseWireDtype(FullCommunicator& communicator, BenchMemory* device,
                      const FastNetwork& fast) {
  const std::string option = Option("wire_dtype", "auto");
  const bool is_chief = communicator.rank() == 0;
  DType chosen = DType::kF32;
  communicator.SetWireDtype(chosen);
  if (communicator.num_hosts() == 1) {
    if (is_chief) LogInfo("comm", "{}: {}: all ranks are on one host", option, Name(chosen));
    return chosen;
  }
  if (device == nullptr && !communicator.SupportsBf16Wire()) return chosen;
  const double fast_gb_per_s = device == nullptr ? fast.for_hosts : fast.for_devices;
  const AllReduceSample sample =
      BenchAllReduce(communicator, {.sizes = {kMeasuredBytes}, .steps = 3, .warmup_steps = 1},
                     device)
          .front();
  if (sample.bus_gb_per_s < fast_gb_per_s) chosen = DType::kBF16;
  communicator.SetWireDtype(chosen);
  if (is_chief)
    LogInfo(
        "comm",
        "{}: chose {}: an all-reduce of {} MiB has {:.3g} GB/s; fp32 is chosen from {:g} GB/s on",
        option, Name(chosen), kMeasuredBytes >> 20, sample.bus_gb_per_s, fast_gb_per_s);
  return chosen;
}

}  // namespace carole::collectives
