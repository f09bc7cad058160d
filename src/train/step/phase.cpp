#include "src/train/step/phase.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "src/core/error.h"

namespace carole::train {
namespace {

struct Fault {
  std::string where;  // "RANK:STEP:PHASE"
  void (*inject)() = nullptr;
};

constexpr struct {
  const char* kind;
  void (*inject)();
} kFaults[] = {
    {"kill", [] { raise(SIGKILL); }},
    {"segv",
     [] {
       signal(SIGSEGV, SIG_DFL);
       raise(SIGSEGV);
     }},
    {"stop", [] { raise(SIGSTOP); }},
    {"exit", [] { std::exit(3); }},
    {"quit", [] { _exit(0); }},
};

std::optional<Fault> ReadFault() {
  const char* text = std::getenv("CAROLE_TEST_FAULT");
  if (text == nullptr) return std::nullopt;
  const std::string value = text;
  const size_t colon = value.rfind(':');
  for (const auto& [kind, inject] : kFaults) {
    if (colon != std::string::npos && value.substr(colon + 1) == kind)
      return Fault{.where = value.substr(0, colon), .inject = inject};
  }
  throw UsageError("[train] CAROLE_TEST_FAULT: got " + value + ", want RANK:STEP:PHASE:KIND");
}

// One per thread, as ranks may be threads of one process.
thread_local PhaseObserver phase_observer;

}  // namespace

void SetPhaseObserver(PhaseObserver observer) { phase_observer = std::move(observer); }

void EnterPhase(collectives::Diagnostics& diagnostics, collectives::RankPhase phase, int64_t step) {
  diagnostics.SetPhase(phase, step);
  if (phase_observer) phase_observer(phase, step);
  static const std::optional<Fault> fault = ReadFault();
  if (!fault) return;
  if (fault->where == fmt::format("{}:{}:{}", diagnostics.rank(), step, Name(phase)))
    fault->inject();
}

}  // namespace carole::train
