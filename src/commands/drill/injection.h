// Faults that carole drill injects into one rank of a training: it dies, freezes, gets slow or
// computes wrong values at a chosen point. Nothing else in the program can inject a fault.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carole::commands {

inline constexpr int kExitFaultCode = 3;  // the exit code of the fault "exit"

// A fault of one rank. Its text form is "RANK:STEP:POINT:KIND", such as "1:3:backward:kill".
struct Injection {
  int rank = 0;
  // The number of updates before the fault, or the number of the batch in an evaluation. Most
  // faults happen once. A slow rank and a broken core stay so from this step on.
  int64_t step = 0;
  std::string point;  // one of kPoints
  std::string kind;   // one of KindsOfFaults()
};

// The points of a training at which faults can be injected. They are the phases of a step and:
// start, before ranks connect; bucket, while gradients are reduced and others are computed;
// barrier, before a rank waits for the others after a save.
inline constexpr std::string_view kPoints[] = {"start",  "input",     "forward",   "backward",
                                               "bucket", "reduction", "optimizer", "evaluation",
                                               "saving", "barrier"};

std::vector<std::string_view> KindsOfFaults();

// Whether a fault of this kind changes values or speed. Such a fault can happen at one point only.
// All others can happen at any point.
bool HasOwnPoint(std::string_view kind);

std::string ToText(const Injection& injection);
// Throws UsageError if the text has another form, or names an unknown point or kind.
Injection ParseInjection(const std::string& text);

// Makes the fault happen in the training that this thread runs from now on, if this process is its
// rank. A fault at the start happens now. `rank`: of this process.
void Inject(const Injection& injection, int rank);

}  // namespace carole::commands
