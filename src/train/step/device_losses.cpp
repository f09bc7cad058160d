#include "src/train/step/device_losses.h"

#include <span>
#include <utility>

#include "src/backend/arena_math.h"

namespace carole::train {

DeviceLosses::DeviceLosses(const Graph& graph, const Executable& executable, const Backend& backend,
                           collectives::Communicator& communicator)
    : graph_(graph),
      executable_(executable),
      backend_(backend),
      communicator_(communicator),
      sums_(backend.Allocate(graph.losses().size() * sizeof(float))) {}

void DeviceLosses::Accumulate() {
  const ArenaMath& math = backend_.arena_math();
  const bool has_earlier_losses = std::exchange(has_micro_batch_, true);
  std::byte* sum = sums_.get();
  for (const auto& [name, value] : graph_.losses()) {
    const Tensor loss = executable_.OutputMemory(value);
    if (has_earlier_losses) {
      math.Add(DType::kF32, sum, loss.data, 1);
    } else {
      math.Copy(sum, loss.data, sizeof(float));
    }
    sum += sizeof(float);
  }
}

void DeviceLosses::ReduceAndInspect(optim::Optimizer& optimizer, int64_t step) {
  const size_t count = graph_.losses().size();
  communicator_.AllReduce(std::span(reinterpret_cast<float*>(sums_.get()), count),
                          {.what = "losses on devices", .step = step});
  for (size_t i = 0; i < count; ++i)
    optimizer.InspectLoss({.data = sums_.get() + i * sizeof(float), .shape = {}});
}

}  // namespace carole::train
