#include "src/train/integrity/cross_check.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "collectives/ranks/replica_check.h"
#include "tests/support/text_of.h"
#include "tests/support/walled_backend.h"
#include "tests/train/integrity/disturbed_run.h"

namespace carole::train {
namespace {

using carole::testing::DisturbedOutcome;
using carole::testing::DisturbedRun;
using carole::testing::ErrorsOfRanks;
using carole::testing::ExpectSameReplicas;
using carole::testing::FlipBit;
using carole::testing::FullCommunicator;
using carole::testing::RunRanks;
using carole::testing::SmallStep;
using carole::testing::Train;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kBadStep = 2;

std::unique_ptr<Backend> MakeDevice(int threads) {
  return std::make_unique<carole::testing::WalledBackend>(MakeReferenceBackend(threads));
}

DisturbedRun Checked(int num_ranks, int64_t every = 1) {
  return {.num_ranks = num_ranks,
          .steps = 5,
          .options = {
              .optimizer = "momentum", .moving_average_decay = 0.9, .cross_check_every = every}};
}

DisturbedOutcome TrainUndisturbed(DisturbedRun run) {
  run.hook = {};
  run.options.cross_check_every = 0;
  return Train(run);
}

// Flips a bit of rank 1's gradient of this index in ready order, in these steps: the first
// `num_flips` times that each step is computed.
void FlipGradients(DisturbedRun& run, int index, const std::set<int64_t>& steps, int num_flips,
                   int bit = 20) {
  run.hook = [=](int rank) -> GradientHook {
    if (rank != 1) return {};
    return [=, times = std::map<int64_t, int>()](VariableStore& store, int variable,
                                                 int64_t step) mutable {
      const std::vector<int>& order = store.ready_order();
      const int wanted = index < 0 ? order.back() : order[static_cast<size_t>(index)];
      if (variable != wanted || !steps.contains(step) || ++times[step] > num_flips) return;
      const auto offset = static_cast<size_t>(store.variables()[variable].offset);
      FlipBit(store.gradients<float>()[offset + 1], bit);
    };
  };
}

// The check changes nothing: neither weights and statistics nor the losses. Some batches are short.
TEST(CrossCheckTest, GoodGradientsPassAndKeepTheirBits) {
  std::vector<DisturbedRun> runs = {Checked(2), Checked(3), Checked(3, 2),
                                    Checked(2), Checked(2), Checked(3)};
  runs[3].options.accumulation_steps = 2;
  runs[4].options.accumulation_steps = 2;
  runs[4].options.reproducible = true;
  runs[5].options.average_statistics = false;
  for (const DisturbedRun& run : runs) {
    const DisturbedOutcome checked = Train(run), plain = TrainUndisturbed(run);
    EXPECT_THAT(checked.errors, Each(""));
    EXPECT_THAT(checked.log, Not(HasSubstr("cross-check")));
    EXPECT_EQ(checked.replicas, plain.replicas);
    EXPECT_EQ(checked.losses, plain.losses);
  }
}

TEST(CrossCheckTest, AdasumIsCheckedToo) {
  DisturbedRun run = Checked(2);
  run.options.reduction = collectives::Reduction::kAdasum;
  const DisturbedOutcome want = TrainUndisturbed(run);
  FlipGradients(run, 0, {kBadStep}, 1);
  const DisturbedOutcome got = Train(run);
  ExpectSameReplicas(got, want);
  EXPECT_THAT(got.log, HasSubstr("wrong gradient at step 2"));
}

TEST(CrossCheckTest, AWrongGradientIsComputedAgain) {
  for (const int num_ranks : {2, 3, 4}) {
    for (const int index : {0, -1}) {
      SCOPED_TRACE(fmt::format("{} ranks, variable {}", num_ranks, index));
      DisturbedRun run = Checked(num_ranks);
      const DisturbedOutcome want = TrainUndisturbed(run);
      FlipGradients(run, index, {kBadStep}, 1);
      const DisturbedOutcome got = Train(run);
      ExpectSameReplicas(got, want);
      const std::string variable = index == 0 ? "net/logits/" : "net/conv/weights";
      EXPECT_THAT(got.log, AllOf(HasSubstr("[cross-check] rank 1 ("),
                                 HasSubstr("): wrong gradient at step 2: " + variable)));
    }
  }
}

// Only the last of a rank's micro-batches is checked.
TEST(CrossCheckTest, WithMicroBatchesTheStepIsComputedAgainAsAWhole) {
  for (const bool reproducible : {false, true}) {
    DisturbedRun run = Checked(2);
    run.rows = 2;
    run.options.accumulation_steps = 2;
    run.options.reproducible = reproducible;
    const DisturbedOutcome want = TrainUndisturbed(run);
    FlipGradients(run, 0, {kBadStep}, 1);
    const DisturbedOutcome got = Train(run);
    ExpectSameReplicas(got, want);
    EXPECT_THAT(got.log, HasSubstr("wrong gradient at step 2"));
  }
}

TEST(CrossCheckTest, ARankThatIsWrongAgainEndsTheJob) {
  DisturbedRun permanent = Checked(3), transient = Checked(3), two_ranks = Checked(2);
  FlipGradients(permanent, 0, {kBadStep}, 100);
  FlipGradients(two_ranks, 0, {kBadStep}, 100);
  FlipGradients(transient, 0, {kBadStep, 4}, 1);
  for (const DisturbedRun& run : {permanent, two_ranks}) {
    EXPECT_THAT(Train(run).errors,
                Each(AllOf(HasSubstr("[cross-check] rank 1 ("),
                           HasSubstr("wrong gradient at step 2: net/logits/"),
                           HasSubstr("after an error at step 2; check processor"))));
  }
  EXPECT_THAT(Train(transient).errors, Each(AllOf(HasSubstr("wrong gradient at step 4: "),
                                                  HasSubstr("after an error at step 2"))));
}

TEST(CrossCheckTest, AnUncheckedStepIsNotCompared) {
  DisturbedRun run = Checked(3, 2);  // checks steps 1 and 3
  FlipGradients(run, 0, {kBadStep}, 1);
  const DisturbedOutcome outcome = Train(run);
  EXPECT_THAT(outcome.errors, Each(""));
  EXPECT_THAT(outcome.log, Not(HasSubstr("wrong gradient")));
}

// The names of processors are faked. Ranks 0 and 1 are alike.
TEST(CrossCheckTest, DifferentProcessorsAreComparedWithinABound) {
  DisturbedRun run = Checked(3);
  run.options_of = [](StepOptions& options, int rank) {
    options.processor = rank < 2 ? "model A" : "model B";
  };
  const DisturbedOutcome want = TrainUndisturbed(run);
  const DisturbedOutcome good = Train(run);
  ExpectSameReplicas(good, want);
  EXPECT_THAT(good.log, HasSubstr("compared within 0.001 of their norm"));
  FlipGradients(run, 0, {kBadStep}, 1, 0);  // as rounding would
  EXPECT_THAT(Train(run).log, Not(HasSubstr("wrong gradient")));
  FlipGradients(run, 0, {kBadStep}, 1, 30);
  const DisturbedOutcome bad = Train(run);
  ExpectSameReplicas(bad, want);
  EXPECT_THAT(bad.log, HasSubstr("): wrong gradient at step 2: net/logits/"));
}

TEST(CrossCheckTest, RefusesWhatAnotherRankCannotRepeat) {
  for (const StepOptions& options : {StepOptions{.sync_batch_norm = true, .cross_check_every = 5},
                                     StepOptions{.local_sgd_steps = 2, .cross_check_every = 5}}) {
    EXPECT_THAT(TextOf<UsageError>([&] { options.Check(); }),
                HasSubstr("$(cross_check_every): got "));
  }
  EXPECT_THAT(ErrorsOfRanks(1,
                            [](FullCommunicator& c) {
                              const SmallStep step(c, {.optimizer = "sgd", .cross_check_every = 5},
                                                   {.backend = MakeDevice});
                            }),
              Each(HasSubstr("got a device, want a backend that computes on the processor")));
}

// Runs one check on ranks whose gradients are made up. `value(rank, of)` is what `rank` computes
// for the batch of rank `of`. Returns the errors.
std::vector<std::string> CheckMadeUp(int num_ranks,
                                     const std::function<float(int rank, int of)>& value) {
  return ErrorsOfRanks(num_ranks, [&](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "sgd"}, {.batch_norm = true});
    VariableStore& store = step.store();
    RankFaults faults;
    CrossCheck check(c, store, faults, {.every_n_steps = 1, .processor = "A"});
    const auto compute = [&](int of) {
      std::ranges::fill(store.gradients<float>(), value(c.rank(), of));
      store.statistics<float>()[0] = static_cast<float>(of);
    };
    const std::vector<float> images(64, static_cast<float>(c.rank()));
    const std::vector<int32_t> labels = {c.rank()};
    compute(c.rank());
    check.Run({.batch = {.images = images, .labels = labels, .first_sample = 10 + c.rank()},
               .row_weight = c.rank() / 8.0},
              0,
              {.repeat = [&] { compute(c.rank()); },
               .recompute =
                   [&](const CheckedBatch& checked) {
                     const int of = checked.batch.labels[0];
                     EXPECT_EQ(checked.batch.images[63], static_cast<float>(of));
                     EXPECT_EQ(checked.batch.first_sample, 10 + of);
                     EXPECT_EQ(checked.row_weight, of / 8.0);
                     compute(of);
                   }});
    EXPECT_EQ(store.gradients<float>()[5], static_cast<float>(c.rank()));
    EXPECT_EQ(store.statistics<float>()[0], static_cast<float>(c.rank()));
  });
}

TEST(CrossCheckTest, AWrongCheckerIsNamed) {
  ::testing::internal::CaptureStderr();
  const auto errors = CheckMadeUp(
      4, [](int rank, int of) { return static_cast<float>(rank == 2 && of == 1 ? 7 : of); });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rank 2 ("), HasSubstr("it was wrong as a checker")));
}

TEST(CrossCheckTest, ADisputeThatNobodyDecidesEndsTheJob) {
  // Each rank has another result for the batch of rank 0.
  EXPECT_THAT(
      CheckMadeUp(3, [](int rank, int of) { return static_cast<float>(of == 0 ? 10 * rank : of); }),
      Each(AllOf(HasSubstr("gradients differ at step 0: rank 0 ("),
                 HasSubstr("agrees with none of them"))));
  // Rank 1 always gets the same wrong result.
  EXPECT_THAT(
      CheckMadeUp(
          2, [](int rank, int of) { return static_cast<float>(rank == 1 && of == 0 ? 7 : of); }),
      Each(AllOf(HasSubstr("rank 0 ("), HasSubstr("rank 1 ("),
                 HasSubstr("each of them gets its result again"))));
}

}  // namespace
}  // namespace carole::train
