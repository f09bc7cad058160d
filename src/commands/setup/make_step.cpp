#include "src/commands/setup/make_step.h"

#include <optional>
#include <utility>

#include "launch/machine/cores.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/parse_number.h"
#include "src/train/step/step_memory.h"

namespace carole::commands {
namespace {

constexpr double kGiB = 1 << 30;
constexpr double kMaxGiB = 1 << 20;
// The fraction of a rank's memory that is reserved for images, libraries and communication.
constexpr double kReserve = 0.1;

std::optional<double> ParseGiB(const std::string& text) {
  const auto gib = ParseNumber<double>(text);
  return gib && *gib > 0 && *gib <= kMaxGiB ? gib : std::nullopt;
}

// Returns the bytes that are left for activations. `share`: the bytes that a rank can have.
size_t ActivationBudget(double share, const Graph& graph, const train::StepOptions& options) {
  const auto state = static_cast<double>(train::StateBytes(graph, options));
  const double left = (1 - kReserve) * share - state;
  if (left <= 0) {
    throw ConfigError(fmt::format(
        "[memory] --activation_memory=auto: no memory is left for activations: a rank can have "
        "{:.2f} GiB, weights, gradients and slots need {:.2f}; use fewer ranks per host",
        share / kGiB, state / kGiB));
  }
  LogInfo("memory", "a rank can have {:.2f} GiB, {:.2f} GiB of them for activations", share / kGiB,
          left / kGiB);
  return static_cast<size_t>(left);
}

// Sets the memory limits of a step, the same on all ranks. `flag`: --activation_memory.
void SetMemory(const std::string& flag, const RankContext& context, const Graph& graph,
               train::StepOptions& options) {
  const int64_t share = context.MinMemoryShare(RankContext::Memory::kBackend);
  // Only the chief gets the limit, so that one rank warns for all: their shares are equal.
  if (share > 0 && context.is_chief() && !context.backend().has_own_memory())
    options.host_memory_bytes = share;
  if (flag == "auto") {
    options.activation_bytes = ActivationBudget(static_cast<double>(share), graph, options);
  } else if (!flag.empty()) {
    options.activation_bytes = static_cast<size_t>(*ParseGiB(flag) * kGiB);
  }
}

}  // namespace

void AddActivationMemoryFlag(CommandLine& line, std::string& flag) {
  line.Add("activation_memory", flag,
           "GiB per rank for activations; if they need more, some are recomputed in backward; "
           "auto: all that the host or GPU has left; empty: no limit.")
      .Satisfies([](const std::string& text) {
        const bool good = text.empty() || text == "auto" || ParseGiB(text).has_value();
        return good ? std::string() : "got " + text + ", want auto or a number of GiB above 0";
      });
}

OwnedUnlessFailing<train::TrainStep> MakeStep(const RankContext& context,
                                              std::unique_ptr<Graph> graph,
                                              train::StepOptions options,
                                              const std::string& activation_memory) {
  options.processor = launch::CpuModelName();
  SetMemory(activation_memory, context, *graph, options);
  options.connect_devices = [&context, sync_batch_norm = options.sync_batch_norm,
                             reproducible = options.reproducible] {
    context.ConnectDevices({.has_urgent_sums = sync_batch_norm, .in_tree_order = reproducible});
  };
  auto step = MakeOwnedUnlessFailing<train::TrainStep>(context, std::move(graph), context.backend(),
                                                       context.communicator(), options);
  context.ChooseWireDtype();
  step->ChooseBucketSize();
  return step;
}

}  // namespace carole::commands
