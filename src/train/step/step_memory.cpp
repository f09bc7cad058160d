#include "src/train/step/step_memory.h"

#include <fmt/format.h>

#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::train {
namespace {

double GiB(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

size_t StateBytes(const Graph& graph, const StepOptions& options) {
  // Values per element of a trainable variable, and of a running statistic or frozen variable.
  const size_t per_trainable = options.CountParameterArenas();
  const size_t per_other = options.moving_average_decay != 0 ? 2 : 1;
  size_t elements = 0;
  for (const Variable& v : graph.variables())
    elements += static_cast<size_t>(v.shape.size()) * (v.trainable ? per_trainable : per_other);
  return elements * SizeOf(graph.compute());
}

void RequireMemory(const Backend& backend, const Graph& graph, size_t activation_bytes,
                   const StepOptions& options) {
  const std::optional<size_t> free =
      backend.has_own_memory() ? backend.FreeBytes() : options.host_memory_bytes;
  const size_t state = StateBytes(graph, options);
  const Shape& images = graph.shape(graph.input("images"));
  const size_t next_batch = static_cast<size_t>(images.size()) * SizeOf(graph.compute());
  const size_t wanted = activation_bytes + next_batch;
  if (!free || state + wanted <= *free) return;
  const size_t left = *free > state ? *free - state : 0;
  const size_t fitting = static_cast<size_t>(images[0]) * left / wanted;
  std::string remedy = "use smaller images or another net";
  if (left > next_batch) {
    remedy = fmt::format(
        "use {}{} (recomputes activations)",
        fitting > 0 ? Option("batch_size", std::to_string(fitting)) + " or less, or " : "",
        Option("activation_memory", fmt::format("{:.2f}", GiB(left - next_batch))));
  }
  const std::string advice = fmt::format(
      "got {:.2f} GiB free, want {:.2f} for activations and {:.2f} for weights, gradients and "
      "slots; {}",
      GiB(*free), GiB(wanted), GiB(state), remedy);
  if (backend.has_own_memory()) {
    throw ConfigError(
        fmt::format("[memory] a step does not fit into the {} device: {}", backend.name(), advice));
  }
  LogWarning("memory", "the system may kill ranks, as a step needs more memory than a rank has: {}",
             advice);
}

}  // namespace carole::train
