#include "src/train/device_memory.h"

#include <fmt/format.h>

#include "src/core/error.h"

namespace carole::train {
namespace {

double GiB(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

void RequireMemory(const MemoryNeed& need) {
  const std::optional<size_t> free = need.backend.FreeBytes();
  int64_t elements = 0;
  for (const Variable& v : need.graph.variables()) elements += v.shape.size();
  const size_t element = SizeOf(need.graph.compute());
  const size_t state = need.arenas * static_cast<size_t>(elements) * element;
  const Shape& images = need.graph.shape(need.graph.input("images"));
  const size_t ahead = static_cast<size_t>(images.size()) * element;  // of the next batch
  const size_t wanted = need.activation_bytes + ahead;
  if (!free || state + wanted <= *free) return;
  const size_t left = *free > state ? *free - state : 0;
  const size_t fitting = static_cast<size_t>(images[0]) * left / wanted;
  throw ConfigError(fmt::format(
      "[memory] a step does not fit into the {} device: got {:.2f} GiB free, want {:.2f} for "
      "activations and {:.2f} for weights, gradients and slots; {}--activation_memory={:.2f} "
      "computes some again",
      need.backend.name(), GiB(*free), GiB(wanted), GiB(state),
      fitting > 0 ? fmt::format("use --batch_size={} or less, or ", fitting) : "",
      GiB(left > ahead ? left - ahead : 0)));
}

}  // namespace carole::train
