// Runs a whole training by Trainer on ranks that are threads, with optional faults.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "io/checkpoint/checkpoint_folder.h"
#include "src/train/loop/trainer.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/training.h"

namespace carole::train {

struct Job {
  TrainerOptions options;
  std::string optimizer = "adam";
  double learning_rate = 0.01;
  int num_ranks = 1;
  int64_t global_batch = 4;
  bool batch_norm = false;
  int64_t local_sgd_steps = 0;
  std::unique_ptr<Backend> (*backend)(int threads) = MakeReferenceBackend;
  bool make_weights_nan = false;  // on all ranks, when stop_requested is polled the third time
  std::set<int64_t> bad_batches = {},
                    short_batches = {};  // batches of the last rank; see testing::FormulaSource
  double moving_average_decay = 0;
  std::vector<float> warm_start_beta = {};  // values of beta in a warm start
  // Rank 0 takes this long to get initial weights, the last rank to open its data.
  std::chrono::milliseconds start_delay{0};
  double deadline_seconds = 60;
};

struct JobResult {
  std::vector<std::string> errors;
  std::vector<ExitCode> codes;
  RunState state;
  std::vector<double> weights;  // weights and statistics of rank 0
};

inline JobResult RunJob(const Job& job) {
  JobResult result;
  result.codes.assign(static_cast<size_t>(job.num_ranks), ExitCode::kInternal);
  const auto run = [&](testing::FullCommunicator& c) {
    const auto backend = job.backend(1);
    const int64_t local_batch = job.global_batch / c.size();
    testing::SmallNet net(local_batch, job.batch_norm);
    TrainStep step(std::move(net.graph), *backend, c,
                   {.optimizer = job.optimizer,
                    .moving_average_decay = job.moving_average_decay,
                    .local_sgd_steps = job.local_sgd_steps});
    TrainerOptions options = job.options;
    options.warm_start = [&](VariableStore& store) {
      std::this_thread::sleep_for(job.start_delay);
      if (!job.warm_start_beta.empty())
        store.Write(store.Find("net/conv/BatchNorm/beta"), job.warm_start_beta);
    };
    int64_t steps = 0;
    if (job.make_weights_nan) {
      options.stop_requested = [&] {
        if (++steps == 3) {
          const std::vector<float> beta(12, NAN);
          step.store().Write(step.store().Find("net/conv/BatchNorm/beta"), beta);
        }
        return false;
      };
    }
    const optim::LearningRate rate({.type = "fixed", .learning_rate = job.learning_rate});
    Trainer trainer(
        step, c, c, rate,
        [&](const RunState& start) {
          if (c.rank() == c.size() - 1) std::this_thread::sleep_for(job.start_delay);
          return std::make_unique<testing::FormulaSource>(
              testing::FormulaSource::Options{.local_batch = local_batch,
                                              .rank = c.rank(),
                                              .size = c.size(),
                                              .bad_batches = job.bad_batches,
                                              .short_batches = job.short_batches,
                                              .bad_rank = c.size() - 1},
              start);
        },
        options);
    result.codes[c.rank()] = trainer.Run();
    if (c.rank() == 0) {
      result.state = trainer.state();
      result.weights = testing::AllWeights(step.store());
    }
  };
  result.errors =
      testing::ErrorsOfRanks(job.num_ranks, run, {.deadline_seconds = job.deadline_seconds});
  return result;
}

inline TrainerOptions OptionsFor(const TemporaryFolder& folder, int64_t steps) {
  return {.train_dir = folder.path(), .max_number_of_steps = steps, .seed = 11};
}

inline void ExpectNoErrors(const JobResult& result) {
  EXPECT_THAT(result.errors, ::testing::Each(""));
}

inline std::vector<int64_t> StepsSaved(const TemporaryFolder& folder) {
  std::vector<int64_t> steps;
  for (const auto& file : io::ListCheckpoints(folder.path())) steps.push_back(file.step);
  return steps;
}

}  // namespace carole::train
