// FullCommunicator: all interfaces of a rank's communicator. Those who make or own a communicator
// use it (local/communicator.h and mpi/communicator.h make them). Code that uses one takes the
// parts that it needs:
//   Communicator        collectives (communicator.h)
//   Diagnostics         phases, records, clocks and waiting times (diagnostics.h)
//   DeviceCollectives   all-reduce of device memory and replay of captured work
//                       (device_all_reduce.h)
//   AllReduceSelection  the algorithm of all-reduces, and their type on the wire
//                       (all_reduce_algorithm.h)
#pragma once

#include "collectives/all_reduce_algorithm.h"
#include "collectives/communicator.h"
#include "collectives/device_all_reduce.h"
#include "collectives/diagnostics.h"

namespace carole::collectives {

class FullCommunicator : public Communicator,
                         public Diagnostics,
                         public DeviceCollectives,
                         public AllReduceSelection {
 public:
  int rank() const override = 0;  // of Communicator and of Diagnostics
};

}  // namespace carole::collectives
