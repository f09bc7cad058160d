// Chooses the type in which gradients travel by the speed of the network.
#pragma once

#include "collectives/bench.h"
#include "collectives/full_communicator.h"
#include "src/core/dtype.h"

namespace carole::collectives {

// Bus bandwidths (bench.h) at which a network is fast enough for fp32. Hosts: about the speed at
// which a core rounds. Devices: an estimate of what a network of 200 Gbit/s reaches; on it, the
// gradients of ResNet-50 take about a third of a step of an H200.
struct FastNetwork {
  double for_hosts = 10, for_devices = 18;  // GB/s
};

// Chooses the type of gradients, and sets it (AllReduceSelection::SetWireDtype()): bf16 if the
// ranks are on several hosts and an all-reduce of kMeasuredBytes is slower than in a fast network,
// else fp32. `device` is memory of the device that holds the gradients; null for hosts. Returns the
// same on all ranks; rank 0 logs it. Collective. Throws CommError as BenchAllReduce() does.
inline constexpr size_t kMeasuredBytes = size_t{16} << 20;
DType ChooseWireDtype(FullCommunicator& communicator, BenchMemory* device = nullptr,
                      const FastNetwork& fast = {});

}  // namespace carole::collectives
