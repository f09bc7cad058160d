// How faults get into a training. The libraries have two hooks: one runs when a rank enters a phase
// (src/train/step/phase.h), one when a gradient is final (src/train/step/gradient_hook.h). Faults
// of the process happen in the first one; wrong gradients and weights in the second one, which sees
// the memory of the replica. Both run on the training thread.
//
// A slow network is a pause after the first all-reduce of each step, so this rank joins the next
// one late. A full disk is a limit of the size of files: with it, writing fails as on a full disk,
// and no other process is affected. A lost host is the death of the launcher's daemon and of the
// rank.
#include "src/commands/drill/injection.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <thread>
#include <utility>

#include "src/core/error.h"
#include "src/core/text/join_names.h"
#include "src/core/text/parse_number.h"
#include "src/train/step/gradient_hook.h"
#include "src/train/step/phase.h"

namespace carole::commands {
namespace {

using collectives::Diagnostics;

constexpr auto kDelay = std::chrono::milliseconds(110);  // of a slow rank, in each step

// Ends the process as an error in its memory would: handlers see the signal first.
void Crash(int signal) { raise(signal); }

// Stops this process. A helper continues it some seconds later.
void FreezeAndReturn() {
  std::string command = fmt::format("sleep 3; kill -CONT {}", getpid());
  char shell[] = "sh", option[] = "-c";
  char* const arguments[] = {shell, option, command.data(), nullptr};
  pid_t helper = 0;
  if (posix_spawn(&helper, "/bin/sh", nullptr, nullptr, arguments, environ) == 0) raise(SIGSTOP);
}

void FillDisk() {
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = 512;
  setrlimit(RLIMIT_FSIZE, &limit);
}

void LoseHost() {
  kill(getppid(), SIGKILL);
  raise(SIGKILL);
}

void Pause() { std::this_thread::sleep_for(kDelay); }

// The gradients or weights of one variable.
using Values = std::span<float>;

// Doubles or halves the largest value: the lowest bit of its exponent changes.
void FlipBit(Values values) {
  const auto largest = std::ranges::max_element(
      values, {}, [](float value) { return std::isfinite(value) ? std::fabs(value) : 0; });
  uint32_t bits = 0;
  std::memcpy(&bits, &*largest, sizeof bits);
  bits ^= 1U << 23;
  std::memcpy(&*largest, &bits, sizeof bits);
}

void SetToNan(Values values) { values[0] = std::numeric_limits<float>::quiet_NaN(); }

enum class Target { kProcess, kGradient, kWeight, kCollectives };

struct Kind {
  std::string_view name;
  std::string_view own_point = "";   // "": any point
  void (*act)() = nullptr;           // for kProcess and kCollectives
  void (*change)(Values) = nullptr;  // for kGradient and kWeight
  Target target = Target::kProcess;
  bool repeats = false;  // in each step from the first one on
};

constexpr Kind kKinds[] = {
    {.name = "kill", .act = [] { raise(SIGKILL); }},
    {.name = "segv", .act = [] { Crash(SIGSEGV); }},
    {.name = "abort", .act = [] { Crash(SIGABRT); }},
    {.name = "exit", .act = [] { std::exit(kExitFaultCode); }},
    {.name = "quit", .act = [] { _exit(0); }},
    {.name = "freeze", .act = [] { raise(SIGSTOP); }},
    {.name = "freeze_and_return", .act = FreezeAndReturn},
    {.name = "sigterm", .act = [] { raise(SIGTERM); }},
    {.name = "sigint", .act = [] { raise(SIGINT); }},
    {.name = "sigusr1", .act = [] { raise(SIGUSR1); }},
    {.name = "sigxcpu", .act = [] { raise(SIGXCPU); }},
    {.name = "full_disk", .act = FillDisk},
    {.name = "lost_host", .act = LoseHost},
    {.name = "slow_input", .own_point = "input", .act = Pause, .repeats = true},
    {.name = "slow_compute", .own_point = "forward", .act = Pause, .repeats = true},
    {.name = "slow_network",
     .own_point = "reduction",
     .act = Pause,
     .target = Target::kCollectives,
     .repeats = true},
    {.name = "nan", .own_point = "backward", .change = SetToNan, .target = Target::kGradient},
    {.name = "flip_gradient",
     .own_point = "backward",
     .change = FlipBit,
     .target = Target::kGradient},
    {.name = "broken_core",
     .own_point = "backward",
     .change = FlipBit,
     .target = Target::kGradient,
     .repeats = true},
    {.name = "flip_weight", .own_point = "backward", .change = FlipBit, .target = Target::kWeight},
};

const Kind* FindKind(std::string_view name) {
  const auto* const kind = std::ranges::find(kKinds, name, &Kind::name);
  return kind == std::end(kKinds) ? nullptr : kind;
}

// The fault of this process while it trains. The hooks own it together.
class Fault {
 public:
  explicit Fault(const Injection& injection)
      : step_(injection.step), point_(injection.point), kind_(*FindKind(injection.kind)) {}

  void OnPoint(Diagnostics& diagnostics, std::string_view point, int64_t step) {
    if (kind_.target == Target::kCollectives && !std::exchange(observes_, true)) {
      diagnostics.SetObserver([this](const collectives::CollectiveRecord& record) {
        if (record.operation != collectives::Operation::kAllReduce || record.step < step_) return;
        if (std::exchange(last_step_, record.step) != record.step) kind_.act();  // once in a step
      });
    }
    if (kind_.target == Target::kProcess && point == point_ && IsDue(step)) kind_.act();
  }

  // Gradients become final one by one. The fault hits the one in the middle: then buckets are in
  // flight, and more will follow. A weight is changed when the last one is final. Before, backward
  // may still use the weight, and all ranks would get gradients that are wrong alike.
  void OnGradient(const VariableStore& store, int variable, int64_t step) {
    const std::vector<int>& order = store.ready_order();
    if (variable != (kind_.target == Target::kWeight ? order.back() : order[order.size() / 2]))
      return;
    if (kind_.target == Target::kProcess && point_ == "bucket" && IsDue(step)) kind_.act();
    if (kind_.target != Target::kGradient && kind_.target != Target::kWeight) return;
    if (store.dtype() != DType::kF32 || store.backend().has_own_memory()) return;
    if (!IsDue(step)) return;
    const VariableSlice& slice = store.variables()[variable];
    const Values all =
        kind_.target == Target::kWeight ? store.weights<float>() : store.gradients<float>();
    kind_.change(all.subspan(slice.offset, slice.count));
  }

 private:
  bool IsDue(int64_t step) {
    if (kind_.repeats) return step >= step_;
    return step == step_ && !std::exchange(is_done_, true);
  }

  const int64_t step_;
  const std::string point_;
  const Kind& kind_;
  bool is_done_ = false, observes_ = false;
  int64_t last_step_ = -1;  // of the thread that runs the collectives
};

}  // namespace

std::vector<std::string_view> KindsOfFaults() {
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) names.push_back(kind.name);
  return names;
}

bool HasOwnPoint(std::string_view kind) {
  const Kind* const found = FindKind(kind);
  return found != nullptr && !found->own_point.empty();
}

std::string ToText(const Injection& injection) {
  return fmt::format("{}:{}:{}:{}", injection.rank, injection.step, injection.point,
                     injection.kind);
}

Injection ParseInjection(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ':');) parts.push_back(part);
  if (parts.size() == 4) {
    const auto rank = ParseNumber<int>(parts[0]);
    const auto step = ParseNumber<int64_t>(parts[1]);
    const Kind* const kind = FindKind(parts[3]);
    if (rank && step && *rank >= 0 && *step >= 0 && kind != nullptr &&
        std::ranges::find(kPoints, parts[2]) != std::end(kPoints) &&
        (kind->own_point.empty() || kind->own_point == parts[2]))
      return {.rank = *rank, .step = *step, .point = parts[2], .kind = parts[3]};
  }
  throw UsageError({.tag = "drill",
                    .option = "inject",
                    .problem = "bad fault",
                    .got = text,
                    .want = fmt::format("RANK:STEP:POINT:KIND with a point of {} and a kind of {}",
                                        JoinTexts(kPoints), JoinTexts(KindsOfFaults()))});
}

void Inject(const Injection& injection, int rank) {
  if (injection.rank != rank) return;
  const auto fault = std::make_shared<Fault>(injection);
  if (injection.point == "start") return FindKind(injection.kind)->act();
  train::SetPointHook([fault](Diagnostics& diagnostics, std::string_view point, int64_t step) {
    fault->OnPoint(diagnostics, point, step);
  });
  train::SetGradientHook([fault](VariableStore& store, int variable, int64_t step) {
    fault->OnGradient(store, variable, step);
  });
}

}  // namespace carole::commands
