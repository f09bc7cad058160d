// The settings with which a communicator is made.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "collectives/all_reduce_algorithm.h"
#include "src/core/dtype.h"

namespace carole::collectives {

struct CommunicatorOptions {
  double warn_seconds = 10;      // after this long, the log reports a stall
  double deadline_seconds = 60;  // after this long, a stalled operation throws CommError
  AllReduceAlgorithm all_reduce = AllReduceAlgorithm::kAuto;
  std::string choices_path;  // file that keeps the choices of kAuto; "" keeps none
  // kF32 or kBF16: the type in which fp32 travels between hosts, and between devices, if
  // Tag::may_round is set. nullopt: kF32 until ChooseWireDtype() (wire_choice.h).
  std::optional<DType> wire_dtype = DType::kF32;
  size_t segment_bytes = 512 << 10;  // size of a message in flight
  int ranks_per_host = 0;  // for tests: pretend that each host has this many ranks; 0: real hosts
};

}  // namespace carole::collectives
