// Compares training on devices whose memory the host cannot touch with training on the host.
#pragma once

#include <memory>

#include "src/train/step/step_replay.h"
#include "tests/support/walled_all_reduce.h"
#include "tests/support/walled_cuda.h"
#include "tests/train/rank_training.h"

namespace carole::testing {

inline std::unique_ptr<Backend> MakeWalledReference(int threads) {
  return std::make_unique<WalledBackend>(MakeReferenceBackend(threads));
}
inline std::unique_ptr<Backend> MakeEarlyCopying(int threads) {
  return std::make_unique<WalledBackend>(MakeReferenceBackend(threads), CopyTime::kEarly);
}
inline std::unique_ptr<Backend> MakeWalledOneDnn(int threads) {
  return std::make_unique<WalledBackend>(MakeOneDnnBackend(threads));
}
inline std::unique_ptr<Backend> MakeEmulatedCuda(int /*threads*/) {
  return std::make_unique<WalledCuda>();
}

// The steps of a training that is long enough to be captured, and those of them that are replayed.
constexpr int64_t kManySteps = 8;
constexpr int64_t kReplayedSteps = kManySteps - train::StepReplay::kWarmUpRuns;

// Expects that the training gives the same bits on devices as on its own backend, with the same
// number of ranks. Returns the outcome of the devices.
inline TrainingOutcome ExpectSameBits(
    RankTraining training,
    std::unique_ptr<Backend> (*make_device)(int threads) = MakeWalledReference) {
  training.run_ahead = false;
  const TrainingOutcome host = Train(training);
  training.backend = make_device;
  training.run_ahead = true;
  if (training.num_ranks > 1) training.connect_devices = ConnectWalled(training.num_ranks);
  TrainingOutcome device = Train(training);
  EXPECT_EQ(device.losses, host.losses);
  EXPECT_EQ(device.weights, host.weights);
  return device;
}

}  // namespace carole::testing
