#include "collectives/communicator.h"

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

}  // namespace carole::collectives
