// Trains a small net for a few steps on ranks that are threads. Tests compare the outcomes of
// different numbers of ranks, micro-batches, backends and options.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/train/training.h"

namespace carole::testing {

struct RankTraining {
  int num_ranks = 1;
  int64_t rows = 8;  // batch size of the graph; a rank's batch has accumulation_steps times as many
  int64_t num_samples = 22;
  int64_t steps = 4;
  DType dtype = DType::kF32;
  std::unique_ptr<Backend> (*backend)(int threads) = MakeReferenceBackend;
  train::StepOptions options = {.optimizer = "momentum"};
  // Lets the communicator reduce memory of the ranks' devices; empty for the host.
  std::function<void(FullCommunicator& communicator, const Backend& backend)> connect_devices;
  // Makes the net; `pixels` is the size of its images.
  std::function<std::unique_ptr<Graph>(int64_t rows, DType dtype)> graph =
      [](int64_t rows, DType dtype) { return std::move(SmallNet(rows, true, dtype).graph); };
  int64_t pixels = kSmallImage * kSmallImage;
  bool whole_bytes = false;  // see FormulaSource
  DType image_dtype = DType::kF32;
  collectives::CommunicatorOptions communicator;
  bool run_ahead = false;  // launch a step before the previous one has ended, if that is possible
};

struct TrainingOutcome {
  std::vector<double> losses;   // of each step, from rank 0
  std::vector<double> weights;  // weights and statistics of rank 0
  int64_t replays = 0;
};

// A learning rate that differs from step to step.
inline double RateAt(int64_t step) { return 0.05 / static_cast<double>(1 + step % 3); }

inline TrainingOutcome Train(const RankTraining& t) {
  TrainingOutcome outcome;
  const auto work = [&](FullCommunicator& c) {
    const auto backend = t.backend(1);
    train::StepOptions options = t.options;
    if (t.connect_devices) options.connect_devices = [&] { t.connect_devices(c, *backend); };
    train::TrainStep step(t.graph(t.rows, t.dtype), *backend, c, options);
    step.store().Initialize(7);
    FormulaSource source({.pixels = t.pixels,
                          .local_batch = t.rows * t.options.accumulation_steps,
                          .num_samples = t.num_samples,
                          .rank = c.rank(),
                          .size = c.size(),
                          .whole_bytes = t.whole_bytes,
                          .dtype = t.image_dtype});
    int64_t begun = 0;
    const auto begin = [&] {
      step.Begin(*source.Next(), {.step = begun, .seed = 3, .learning_rate = RateAt(begun)});
      ++begun;
    };
    for (int64_t s = 0; s < t.steps; ++s) {
      if (step.num_in_flight() == 0) begin();
      if (t.run_ahead && begun < t.steps && step.CanRunAhead()) begin();
      const train::StepResult result = step.End();
      if (c.rank() == 0) outcome.losses.push_back(result.total_loss);
    }
    if (c.rank() == 0) outcome.weights = AllWeights(step.store());
    if (c.rank() == 0) outcome.replays = step.replays();
  };
  RunRanks(t.num_ranks, work, t.communicator);
  return outcome;
}

}  // namespace carole::testing
