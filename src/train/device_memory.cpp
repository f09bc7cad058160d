#include "src/train/device_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/core/error.h"

namespace carole::train {
namespace {

double GiB(size_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

void RequireMemory(const MemoryNeed& need) {
  const std::optional<size_t> free = need.backend.FreeBytes();
  int64_t elements = 0;
  for (const Variable& v : need.graph.variables()) elements += v.shape.size();
  const size_t state = need.arenas * static_cast<size_t>(elements) * SizeOf(need.graph.compute());
  if (!free || state + need.activation_bytes <= *free) return;
  const size_t left = *free > state ? *free - state : 0;
  const auto batch = static_cast<size_t>(need.graph.shape(need.graph.input("images"))[0]);
  const size_t fitting = batch * left / std::max<size_t>(need.activation_bytes, 1);
  throw ConfigError(fmt::format(
      "[memory] a step does not fit into the {} device: got {:.2f} GiB free, want {:.2f} for "
      "activations and {:.2f} for weights, gradients and slots; {}--activation_memory={:.2f} "
      "computes some again",
      need.backend.name(), GiB(*free), GiB(need.activation_bytes), GiB(state),
      fitting > 0 ? fmt::format("use --batch_size={} or less, or ", fitting) : "", GiB(left)));
}

}  // namespace carole::train
