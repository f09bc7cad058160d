#include "collectives/diagnostics.h"

namespace carole::collectives {

std::string_view Name(RankPhase phase) {
  switch (phase) {
    case RankPhase::kStarting:
      return "start";
    case RankPhase::kInput:
      return "input";
    case RankPhase::kForward:
      return "forward";
    case RankPhase::kBackward:
      return "backward";
    case RankPhase::kReduction:
      return "reduction";
    case RankPhase::kOptimizer:
      return "optimizer";
    case RankPhase::kEvaluation:
      return "evaluation";
    case RankPhase::kSaving:
      return "saving";
  }
  return "?";
}

std::string_view Name(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kShift:
      return "shift";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kAllocate:
      return "allocate_arena";
    case Operation::kShutdown:
      return "shutdown";
  }
  return "?";
}

}  // namespace carole::collectives
