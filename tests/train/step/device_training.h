// Trainings on devices whose memory the host cannot touch, beside the host's own.
#pragma once

#include <memory>

#include "src/train/step/step_replay.h"
#include "tests/support/walled_cuda.h"
#include "tests/support/walled_sums.h"
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

// Of a training whose last steps are replayed.
constexpr int64_t kManySteps = 8;
constexpr int64_t kReplayed = kManySteps - train::StepReplay::kRunsBefore;

// As on the backend that the training is for, by as many ranks.
inline TrainingOutcome ExpectSameBits(
    RankTraining training,
    std::unique_ptr<Backend> (*make_device)(int threads) = MakeWalledReference) {
  training.ahead = false;
  const TrainingOutcome host = Train(training);
  training.backend = make_device;
  training.ahead = true;
  if (training.num_ranks > 1) training.connect_devices = ConnectWalled(training.num_ranks);
  TrainingOutcome device = Train(training);
  EXPECT_EQ(device.losses, host.losses);
  EXPECT_EQ(device.weights, host.weights);
  return device;
}

}  // namespace carole::testing
