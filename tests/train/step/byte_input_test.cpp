// Tests images that are bytes and are normalized by the net: training gives the same bits as with
// the normalized values.
#include <gtest/gtest.h>

#include "tests/support/precision_problem.h"
#include "tests/train/step/device_training.h"

namespace carole::train {
namespace {

using carole::testing::MakeEarlyCopying;
using carole::testing::MakeEmulatedCuda;
using carole::testing::MakeWalledReference;
using carole::testing::RankTraining;
using carole::testing::TrainingOutcome;

constexpr int64_t kSide = 8;
constexpr NormalizeAttributes kLenets{.subtract = {128, 128, 128}, .multiply = 1.0f / 128};

// A training of LeNet with dropout and a short last batch, on bytes or on normalized values.
RankTraining TrainingOn(DType image_dtype) {
  return {.steps = 5,
          .options = {.optimizer = "momentum"},
          .graph =
              [image_dtype](int64_t rows, DType compute) {
                nets::ModelOptions options{
                    .batch_size = rows, .image_size = kSide, .training = true, .compute = compute};
                if (image_dtype == DType::kU8) options.normalize = kLenets;
                return nets::BuildModel(nets::FindNet("lenet"), options).graph;
              },
          .pixels = kSide * kSide,
          .whole_bytes = true,
          .image_dtype = image_dtype};
}

// Applies `change` to both trainings.
template <typename Change>
void ExpectSameBitsFromBytes(const Change& change) {
  RankTraining floats = TrainingOn(DType::kF32), bytes = TrainingOn(DType::kU8);
  change(floats);
  change(bytes);
  const TrainingOutcome want = Train(floats), got = Train(bytes);
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.weights, want.weights);
}

TEST(ByteInput, GivesTheSameBitsAsNormalizedValues) {
  for (const BackendEntry& entry : kBackends) {
    if (!entry.unavailable_reason().empty()) continue;
    SCOPED_TRACE(entry.name);
    ExpectSameBitsFromBytes([&](RankTraining& t) { t.backend = entry.make; });
  }
}

TEST(ByteInput, GivesTheSameBitsOnRanksAndInMicroBatches) {
  ExpectSameBitsFromBytes([](RankTraining& t) {
    t.num_ranks = 2;
    t.rows = 2;
    t.options.accumulation_steps = 2;
  });
}

std::unique_ptr<Backend> MakeNarrowOneDnn(int threads) {
  auto backend = MakeOneDnnBackend(threads);
  backend->SetPrecision(Precision::kBf16);
  return backend;
}

TEST(ByteInput, GivesTheSameBitsInBf16) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  const std::string problem =
      carole::testing::PrecisionProblem(Precision::kBf16, *MakeOneDnnBackend(1));
  if (!problem.empty()) GTEST_SKIP() << "skipped: " << problem;
  ExpectSameBitsFromBytes([](RankTraining& t) { t.backend = MakeNarrowOneDnn; });
}

// The bytes are copied while the previous step runs. A kernel of the replayed step normalizes them.
TEST(ByteInput, GivesTheSameBitsOnDevices) {
  for (auto* make : {MakeWalledReference, MakeEarlyCopying, MakeEmulatedCuda}) {
    ExpectSameBitsFromBytes([&](RankTraining& t) {
      t.backend = make;
      t.run_ahead = true;
    });
  }
}

}  // namespace
}  // namespace carole::train
