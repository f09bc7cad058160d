#include "src/train/integrity/replica_audit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "collectives/ranks/replica_check.h"
#include "tests/support/text_of.h"
#include "tests/train/integrity/disturbed_run.h"

namespace carole::train {
namespace {

using carole::testing::DisturbedOutcome;
using carole::testing::DisturbedRun;
using carole::testing::ErrorsOfRanks;
using carole::testing::ExpectSameReplicas;
using carole::testing::FlipBit;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::RunRanks;
using carole::testing::SavedValues;
using carole::testing::SmallStep;
using carole::testing::Train;
using collectives::ReplicaError;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

float& FirstOf(std::byte* arena) { return *reinterpret_cast<float*>(arena); }

float& LogitsWeight(TrainStep& step) {
  const VariableStore& store = step.store();
  const int v = store.Find("net/logits/weights");
  return store.weights<float>()[static_cast<size_t>(store.variables()[v].offset) + 7];
}

float& FirstSlot(TrainStep& step) { return FirstOf(step.optimizer().slot(0)); }

float& FirstMovingAverage(TrainStep& step) {
  return FirstOf(step.replica().moving_averages->shadow(0).data());
}

// Returns all variables that are not trained.
std::vector<int> Statistics(const VariableStore& store) {
  std::vector<int> all;
  for (size_t v = 0; v < store.variables().size(); ++v) {
    if (!store.variables()[v].trainable) all.push_back(static_cast<int>(v));
  }
  return all;
}

struct Damage {
  std::string name;
  std::function<void(TrainStep&)> apply;
};

const Damage kDamages[] = {
    {"net/logits/weights", [](TrainStep& step) { FlipBit(LogitsWeight(step)); }},
    {"/Adam", [](TrainStep& step) { FlipBit(FirstSlot(step)); }},
    {"/Adam_1", [](TrainStep& step) { FlipBit(FirstOf(step.optimizer().slot(1))); }},
    {"net/conv/BatchNorm/moving_",
     [](TrainStep& step) { FlipBit(FirstOf(step.store().statistics_base())); }},
    {"/ExponentialMovingAverage", [](TrainStep& step) { FlipBit(FirstMovingAverage(step)); }},
    {"moving_mean/ExponentialMovingAverage",
     [](TrainStep& step) { FlipBit(FirstOf(step.replica().moving_averages->shadow(1).data())); }},
    {"numbers of the optimizer",
     [](TrainStep& step) { step.optimizer().SetScalar("beta1_power", 0.125); }},
    {"numbers of the optimizer",
     [](TrainStep& step) { step.replica().loss_scale->SetScalar("loss_scale", 4); }}};

// Each rank in turn gets each damage, and has the old values after the audit.
TEST(ReplicaAuditTest, RepairsEachPartOfAReplica) {
  ::testing::internal::CaptureStderr();
  RunRanks(3, [](FullCommunicator& c) {
    SmallStep step(c,
                   {.optimizer = "adam",
                    .moving_average_decay = 0.9,
                    .loss_scale = {.initial = 2, .is_dynamic = true}},
                   {.batch_norm = true});
    FormulaSource source({.rank = c.rank(), .size = c.size()});
    step.Run(*source.Next(), {.learning_rate = 0.01});
    const std::vector<float> before = SavedValues(step);
    RankFaults faults;
    ReplicaAudit audit(c, step.replica(), Statistics(step.store()), faults);
    int64_t number = 0;
    for (const Damage& damage : kDamages) {
      EXPECT_FALSE(audit.Run(number)) << damage.name;
      if (c.rank() == number % 3) {
        damage.apply(step);
        EXPECT_NE(SavedValues(step), before) << damage.name;
      }
      EXPECT_TRUE(audit.Run(number)) << damage.name;
      EXPECT_EQ(SavedValues(step), before) << damage.name;
      number += RankFaults::kWindow / 3 + 1;
    }
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  for (const Damage& damage : kDamages)
    EXPECT_THAT(log, HasSubstr(" and was repaired: ")) << damage.name;
  for (const Damage& damage : kDamages) EXPECT_THAT(log, HasSubstr(damage.name));
}

constexpr int64_t kFlippedStep = 2;

// The bit flips after the gradients of the step were computed, and before the audit.
DisturbedRun WithFlippedBit(const std::function<float&(TrainStep&)>& which) {
  return {
      .options = {.optimizer = "momentum", .moving_average_decay = 0.9, .audit_every_n_steps = 1},
      .before_step = [which](TrainStep& step, int rank, int64_t number) {
        if (rank != 1) return;
        const int last = step.store().ready_order().back();
        SetGradientHook([=, &step](VariableStore&, int variable, int64_t) {
          if (number == kFlippedStep && variable == last) FlipBit(which(step));
        });
      }};
}

TEST(ReplicaAuditTest, ARepairedRunEndsWithTheBitsOfAnUndisturbedOne) {
  DisturbedRun undisturbed = WithFlippedBit(LogitsWeight);
  undisturbed.before_step = {};
  const DisturbedOutcome want = Train(undisturbed);
  EXPECT_THAT(want.log, Not(HasSubstr("[audit]")));
  for (const auto& which : {LogitsWeight, FirstSlot, FirstMovingAverage}) {
    const DisturbedOutcome got = Train(WithFlippedBit(which));
    ExpectSameReplicas(got, want);
    EXPECT_THAT(got.log, AllOf(HasSubstr("[audit] rank 1 ("), HasSubstr("at step 3")));
  }
}

TEST(ReplicaAuditTest, ASecondDivergenceNamesTheHost) {
  DisturbedRun run = WithFlippedBit(FirstSlot);
  run.before_step = [](TrainStep& step, int rank, int64_t number) {
    if (rank == 1 && (number == 1 || number == 3)) FlipBit(FirstSlot(step));
  };
  const DisturbedOutcome outcome = Train(run);
  EXPECT_THAT(outcome.errors, Each(AllOf(HasSubstr("replicas differ at step 4: rank 1 ("),
                                         HasSubstr("as the 2 others; rank 1 ("),
                                         HasSubstr(") was already wrong at step 2"))));
}

TEST(ReplicaAuditTest, TwoRanksHaveNoMajority) {
  DisturbedRun run = WithFlippedBit(LogitsWeight);
  run.num_ranks = 2;
  EXPECT_THAT(Train(run).errors,
              Each(AllOf(HasSubstr("net/logits/weights: replicas differ at step 3: "),
                         HasSubstr("rank 0 ("), HasSubstr("rank 1 ("), HasSubstr("no majority"))));
}

TEST(ReplicaAuditTest, ThreeDifferentReplicasHaveNoMajority) {
  const auto errors = ErrorsOfRanks(3, [](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "momentum"});
    RankFaults faults;
    ReplicaAudit audit(c, step.replica(), {}, faults);
    LogitsWeight(step) = static_cast<float>(c.rank());
    try {
      audit.Run(4);
    } catch (const ReplicaError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUnavailable);
      throw;
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 2 (")));
  EXPECT_THAT(errors, Each(HasSubstr("no majority")));
}

// The gradients of frozen variables are not reduced, so the trained weights would stay equal. With
// local SGD, an audit that falls due in between is postponed until the replicas are equal again.
TEST(ReplicaAuditTest, RepairsFrozenVariables) {
  for (const auto& [local_sgd_steps, found] : {std::pair(0, 8), std::pair(5, 10)}) {
    const DisturbedOutcome outcome =
        Train({.steps = 10,
               .options = {.optimizer = "momentum",
                           .trainable_scopes = {"net/conv"},
                           .local_sgd_steps = local_sgd_steps,
                           .audit_every_n_steps = 4},
               .before_step = [](TrainStep& step, int rank, int64_t number) {
                 const VariableStore& store = step.store();
                 const VariableSlice& p = store.variables()[store.Find("net/logits/weights")];
                 EXPECT_FALSE(p.trainable);
                 if (rank == 1 && number == 5)
                   FlipBit(store.statistics<float>()[static_cast<size_t>(p.offset) + 7]);
               }});
    EXPECT_THAT(outcome.errors, Each(""));
    EXPECT_THAT(outcome.log,
                HasSubstr(fmt::format("at step {} and was repaired: net/logits/weights;", found)));
    EXPECT_EQ(outcome.replicas[1], outcome.replicas[0]);
  }
}

}  // namespace
}  // namespace carole::train
