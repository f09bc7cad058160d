// The small checkpoints that carole_durability_writer saves.
#pragma once

#include "io/checkpoint/checkpoint.h"

namespace carole::testing {

// Returns the checkpoint of a step. All its values depend on the step.
inline io::Checkpoint ExampleCheckpoint(int64_t step) {
  const auto variable = [&](const std::string& name, int64_t count, bool trainable) {
    io::CheckpointVariable v{.name = name, .shape = Shape({count}), .trainable = trainable};
    for (int64_t i = 0; i < count; ++i) v.data.push_back(static_cast<float>(step * 1000 + i));
    return v;
  };
  return {
      .variables = {variable("net/fc1/weights", 1500, true), variable("net/fc1/biases", 10, true)},
      .slots = {variable("net/fc1/weights/Momentum", 1500, false)},
      .step = step,
      .epoch = step / 4,
      .position = step % 4,
      .seed = 7,
      .attributes = {{"net", "example"}, {"step", std::to_string(step)}}};
}

}  // namespace carole::testing
