#include "src/train/step/step_memory.h"

#include <fmt/format.h>

#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::train {
namespace {

double GiB(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

size_t StateBytes(const Graph& graph, const StepOptions& options) {
  const size_t of_trained = options.num_arenas();
  const size_t of_others = options.moving_average_decay != 0 ? 2 : 1;  // statistics, what is frozen
  size_t elements = 0;
  for (const Variable& v : graph.variables())
    elements += static_cast<size_t>(v.shape.size()) * (v.trainable ? of_trained : of_others);
  return elements * SizeOf(graph.compute());
}

void RequireMemory(const Backend& backend, const Graph& graph, size_t activation_bytes,
                   const StepOptions& options) {
  const std::optional<size_t> free = backend.on_host() ? options.host_memory : backend.FreeBytes();
  const size_t state = StateBytes(graph, options);
  const Shape& images = graph.shape(graph.input("images"));
  const size_t ahead =
      static_cast<size_t>(images.size()) * SizeOf(graph.compute());  // of the next batch
  const size_t wanted = activation_bytes + ahead;
  if (!free || state + wanted <= *free) return;
  const size_t left = *free > state ? *free - state : 0;
  const size_t fitting = static_cast<size_t>(images[0]) * left / wanted;
  const std::string advice = fmt::format(
      "got {:.2f} GiB free, want {:.2f} for activations and {:.2f} for weights, gradients and "
      "slots; {}--activation_memory={:.2f} computes some again",
      GiB(*free), GiB(wanted), GiB(state),
      fitting > 0 ? fmt::format("use --batch_size={} or less, or ", fitting) : "",
      GiB(left > ahead ? left - ahead : 0));
  if (!backend.on_host()) {
    throw ConfigError(
        fmt::format("[memory] a step does not fit into the {} device: {}", backend.name(), advice));
  }
  LogWarning("memory", "the system may end ranks, as a step takes more than each can have: {}",
             advice);
}

}  // namespace carole::train
