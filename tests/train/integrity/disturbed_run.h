// Trains a small net with dropout and batch norm on ranks that are threads, while something
// disturbs one of them.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/core/error.h"
#include "src/train/step/gradient_hook.h"
#include "tests/train/training.h"

namespace carole::testing {

inline void FlipBit(float& value, int bit = 20) {
  value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ uint32_t{1} << bit);
}

struct DisturbedRun {
  int num_ranks = 3;
  int64_t rows = 4;
  int64_t steps = 6;
  int64_t num_samples = 22;
  train::StepOptions options = {};
  // Runs on each rank before each step.
  std::function<void(train::TrainStep& step, int rank, int64_t number)> before_step = {};
  // The gradient hook of a rank, or an empty one.
  std::function<train::GradientHook(int rank)> hook = {};
  // Changes the options of one rank.
  std::function<void(train::StepOptions& options, int rank)> options_of = {};
};

struct DisturbedOutcome {
  std::vector<std::string> errors;           // by rank; "" if none
  std::vector<std::vector<float>> replicas;  // everything that a checkpoint stores, by rank
  std::vector<double> losses;                // of each step, from the last rank
  std::string log;
};

inline std::unique_ptr<Graph> NetWithDropout(int64_t rows) {
  SmallNet net(rows, true);
  Graph& g = *net.graph;
  const ValueId dropped = ops::Dropout(g, net.logits, {.keep = 0.7});
  g.AddLoss("dropped",
            ops::SoftmaxCrossEntropy(g, dropped, g.input("labels"), g.input("weights"), {}));
  return std::move(net.graph);
}

inline std::vector<float> SavedValues(train::TrainStep& step) {
  const io::Checkpoint checkpoint = train::MakeSnapshot(step.replica(), {}, {});
  std::vector<float> all;
  for (const auto* variables : {&checkpoint.variables, &checkpoint.slots}) {
    for (const io::CheckpointVariable& v : *variables)
      all.insert(all.end(), v.data.begin(), v.data.end());
  }
  return all;
}

inline DisturbedOutcome Train(const DisturbedRun& run) {
  DisturbedOutcome outcome;
  outcome.replicas.resize(static_cast<size_t>(run.num_ranks));
  ::testing::internal::CaptureStderr();
  outcome.errors = ErrorsOfRanks(run.num_ranks, [&](FullCommunicator& c) {
    const auto backend = MakeReferenceBackend(1);
    train::StepOptions options = run.options;
    if (run.options_of) run.options_of(options, c.rank());
    train::TrainStep step(NetWithDropout(run.rows), *backend, c, options);
    step.store().Initialize(7);
    if (step.replica().moving_averages != nullptr) step.replica().moving_averages->Reset();
    FormulaSource source({.local_batch = run.rows * options.accumulation_steps,
                          .num_samples = run.num_samples,
                          .rank = c.rank(),
                          .size = c.size()});
    if (run.hook) train::SetGradientHook(run.hook(c.rank()));
    for (int64_t s = 0; s < run.steps; ++s) {
      if (run.before_step) run.before_step(step, c.rank(), s);
      try {
        const train::StepResult result =
            step.Run(*source.Next(), {.step = s, .seed = 3, .learning_rate = 0.05});
        if (c.rank() + 1 == c.size()) outcome.losses.push_back(result.total_loss);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kUnavailable);
        throw;
      }
    }
    outcome.replicas[static_cast<size_t>(c.rank())] = SavedValues(step);
  });
  outcome.log = ::testing::internal::GetCapturedStderr();
  return outcome;
}

// Expects that all ranks of both runs end without an error and with the same replica.
inline void ExpectSameReplicas(const DisturbedOutcome& got, const DisturbedOutcome& want) {
  for (const std::string& error : got.errors) EXPECT_EQ(error, "");
  for (const std::vector<float>& replica : got.replicas) {
    ASSERT_FALSE(replica.empty());
    EXPECT_EQ(replica, want.replicas[0]);
  }
  EXPECT_EQ(got.losses, want.losses);
}

}  // namespace carole::testing
