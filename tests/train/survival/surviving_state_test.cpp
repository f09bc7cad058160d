// The state in shared memory, read as a guardian reads it, is the checkpoint that the rank itself
// would write.
#include "src/train/survival/surviving_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>

#include "src/core/error.h"
#include "src/train/step/phase.h"
#include "tests/train/integrity/disturbed_run.h"
#include "tests/train/training.h"

namespace carole::train {
namespace {

using carole::testing::FlipBit;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::RunRanks;
using carole::testing::SmallStep;
using carole::testing::SmallStepOptions;

// What a guardian reads from the shared memory.
class GuardianView {
 public:
  explicit GuardianView(const SurvivingState& state)
      : memory_(MapForReading(state.memory().file())),
        record_(*reinterpret_cast<const StateRecord*>(memory_.data())),
        manifest_(ParseManifest(manifest_bytes())) {}

  const StateRecord& record() const { return record_; }
  const RunFacts& facts() const { return manifest_.facts; }
  std::span<const std::byte> manifest_bytes() const {
    return memory_.subspan(record_.manifest_position, record_.manifest_bytes);
  }
  io::Checkpoint Checkpoint() const { return MakeCheckpoint(manifest_, record_, memory_); }
  uint64_t Digest() const { return io::ComputeDigest(Checkpoint()); }

 private:
  const std::span<const std::byte> memory_;
  const StateRecord& record_;
  const Manifest manifest_;
};

RunFacts SomeFacts() {
  return {.train_dir = "/somewhere",
          .work_dir = "/elsewhere",
          .run_id = 77,
          .rank = 2,
          .size = 3,
          .keep_checkpoints = 4,
          .attributes = {{"net", "small"}, {"flags", ""}},
          .changing_attribute = "ledger",
          .keras = io::KerasModel{.config = "{}", .layers = {"a", "b"}, .training_config = "x"}};
}

// One rank that trains the small net with its state in shared memory.
class SurvivingStateTest : public ::testing::Test {
 protected:
  void Train(StepOptions options, const SmallStepOptions& small,
             const std::function<void(SmallStep&, FullCommunicator&)>& body) {
    RunRanks(1, [&](FullCommunicator& c) {
      options.survivors = &state_;
      SmallStep step(c, options, small);
      progress_ = {.step = 0, .epoch = 0, .position = 0, .seed = 3};
      step.ShareState(SomeFacts(), progress_);
      body(step, c);
    });
  }

  void Step(SmallStep& step) {
    const io::Batch& batch = *source_->Next();
    RunState after = progress_;
    ++after.step;
    after.epoch = batch.next_epoch;
    after.position = batch.next_position;
    step.AnnounceProgress(after);
    const bool applied =
        step.Run(batch, {.step = progress_.step, .seed = 3, .learning_rate = 0.05}).applied;
    const int64_t before = progress_.step;
    progress_ = after;
    if (!applied) progress_.step = before;
  }

  // The checkpoint that the rank would write itself.
  io::Checkpoint Own(SmallStep& step) const {
    return MakeSnapshot(step.replica(), progress_, SomeFacts().attributes);
  }
  uint64_t OwnDigest(SmallStep& step) const { return io::ComputeDigest(Own(step)); }

  SurvivingState state_;
  RunState progress_;
  std::unique_ptr<FormulaSource> source_ =
      std::make_unique<FormulaSource>(FormulaSource::Options{});
};

struct Case {
  const char* optimizer;
  double moving_average_decay;
  bool use_onednn;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.optimizer; }

class EachReplica : public SurvivingStateTest, public ::testing::WithParamInterface<Case> {};

TEST_P(EachReplica, IsTheCheckpointOfTheRank) {
  const Case& c = GetParam();
  if (c.use_onednn && !OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  Train({.optimizer = c.optimizer, .moving_average_decay = c.moving_average_decay},
        {.backend = c.use_onednn ? MakeOneDnnBackend : MakeReferenceBackend, .batch_norm = true},
        [&](SmallStep& step, FullCommunicator&) {
          for (int i = 0; i < 3; ++i) Step(step);
          const GuardianView view(state_);
          ASSERT_TRUE(view.record().is_whole());
          io::Checkpoint kept = view.Checkpoint();
          EXPECT_EQ(kept.step, 3);
          EXPECT_EQ(io::ComputeDigest(kept), OwnDigest(step));
          EXPECT_TRUE(VariablesAreFinite(kept));
        });
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EachReplica,
                         ::testing::Values(Case{"sgd", 0, false}, Case{"momentum", 0.9, false},
                                           Case{"adam", 0, false}, Case{"momentum", 0.9, true},
                                           Case{"adam", 0.9, true}),
                         [](const auto& info) {
                           return std::string(info.param.optimizer) +
                                  (info.param.moving_average_decay > 0 ? "_averages" : "") +
                                  (info.param.use_onednn ? "_onednn" : "");
                         });

TEST_F(SurvivingStateTest, HasTheFactsOfTheRun) {
  Train({}, {}, [&](SmallStep&, FullCommunicator&) {
    const RunFacts facts = GuardianView(state_).facts(), want = SomeFacts();
    EXPECT_EQ(facts.train_dir, want.train_dir);
    EXPECT_EQ(facts.work_dir, want.work_dir);
    EXPECT_EQ(facts.run_id, want.run_id);
    EXPECT_EQ(facts.rank, want.rank);
    EXPECT_EQ(facts.size, want.size);
    EXPECT_EQ(facts.keep_checkpoints, want.keep_checkpoints);
    EXPECT_EQ(facts.attributes, want.attributes);
    EXPECT_EQ(facts.changing_attribute, want.changing_attribute);
    ASSERT_TRUE(facts.keras);
    EXPECT_EQ(facts.keras->config, want.keras->config);
    EXPECT_EQ(facts.keras->layers, want.keras->layers);
    EXPECT_EQ(facts.keras->training_config, want.keras->training_config);
  });
}

// A rank that dies in any phase before the update leaves the state before the step, although
// forward has changed the running statistics.
TEST_F(SurvivingStateTest, IsThatBeforeTheStepUntilTheUpdate) {
  Train({.optimizer = "momentum"}, {.batch_norm = true}, [&](SmallStep& step, FullCommunicator&) {
    Step(step);
    const uint64_t before = OwnDigest(step);
    int phases = 0;
    SetPhaseObserver([&](collectives::RankPhase, int64_t) {
      ++phases;
      const GuardianView view(state_);
      EXPECT_TRUE(view.record().is_whole());
      EXPECT_EQ(view.Digest(), before);
    });
    Step(step);
    SetPhaseObserver({});
    EXPECT_GE(phases, 4);  // forward, backward, reduction, optimizer
    EXPECT_NE(GuardianView(state_).Digest(), before);
    EXPECT_EQ(GuardianView(state_).Digest(), OwnDigest(step));
  });
}

// The text for the next epoch is written before the step that ends this one.
TEST_F(SurvivingStateTest, HasTheTextOfItsEpoch) {
  Train({}, {}, [&](SmallStep& step, FullCommunicator&) {
    const GuardianView view(state_);
    const auto text = [&] { return view.Checkpoint().attributes["ledger"]; };
    EXPECT_EQ(text(), "");
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      const std::string now = std::to_string(epoch), next = std::to_string(epoch + 1);
      state_.KeepText("counted " + now, epoch);
      EXPECT_EQ(text(), "counted " + now);
      state_.KeepText("planned " + next, epoch + 1);
      EXPECT_EQ(text(), "counted " + now);
      progress_.epoch = epoch + 1;
      state_.EndChange(step.replica(), progress_);
      EXPECT_EQ(text(), "planned " + next);
    }
    state_.KeepText(std::string(KeptText::kMaxBytes + 1, 'x'), progress_.epoch);
    EXPECT_EQ(text(), "planned 5");
    state_.record().texts[0].number = 0;  // a rank that dies while it writes a text
    state_.record().texts[1].number = 0;
    state_.record().texts[2].number = 0;
    EXPECT_EQ(text(), "");
  });
}

TEST_F(SurvivingStateTest, IsNotWholeDuringAnUpdate) {
  Train({}, {}, [&](SmallStep& step, FullCommunicator&) {
    state_.BeginChange();
    state_.BeginChange();  // changes may be nested in a step
    EXPECT_FALSE(GuardianView(state_).record().is_whole());
    state_.EndChange(step.replica(), progress_);
    EXPECT_TRUE(GuardianView(state_).record().is_whole());
  });
}

// In local SGD, an evaluation may come between two averages.
TEST_F(SurvivingStateTest, ASwapDoesNotMakeAStateWhole) {
  Train({.optimizer = "momentum", .moving_average_decay = 0.9}, {},
        [&](SmallStep& step, FullCommunicator&) {
          EXPECT_TRUE(state_.BeginChange());
          for (const bool is_swapped : {true, false}) {
            step.SwapAverages(is_swapped);
            EXPECT_FALSE(GuardianView(state_).record().is_whole());
          }
          state_.EndChange(step.replica(), progress_);
          EXPECT_TRUE(GuardianView(state_).record().is_whole());
        });
}

// During an evaluation, weights and moving averages are exchanged.
TEST_F(SurvivingStateTest, HasTheWeightsWhileAveragesAreSwapped) {
  Train({.optimizer = "momentum", .moving_average_decay = 0.9}, {.batch_norm = true},
        [&](SmallStep& step, FullCommunicator&) {
          for (int i = 0; i < 2; ++i) Step(step);
          const uint64_t digest = OwnDigest(step);
          step.SwapAverages(true, [&] { EXPECT_FALSE(GuardianView(state_).record().is_whole()); });
          EXPECT_NE(OwnDigest(step), digest);
          EXPECT_TRUE(GuardianView(state_).record().is_whole());
          EXPECT_EQ(GuardianView(state_).Digest(), digest);
          step.SwapAverages(false);
          EXPECT_EQ(GuardianView(state_).Digest(), digest);
        });
}

TEST_F(SurvivingStateTest, CountsASkippedStepAsData) {
  source_ = std::make_unique<FormulaSource>(FormulaSource::Options{.bad_batches = {1}});
  Train({.optimizer = "momentum"}, {.batch_norm = true}, [&](SmallStep& step, FullCommunicator&) {
    for (int i = 0; i < 2; ++i) Step(step);
    EXPECT_EQ(progress_.step, 1);
    const GuardianView view(state_);
    const io::Checkpoint kept = view.Checkpoint();
    EXPECT_EQ(kept.step, 1);
    EXPECT_EQ(kept.position, 8);
    EXPECT_EQ(io::ComputeDigest(kept), OwnDigest(step));
  });
}

// Between averages of local SGD, no rank's state stands for all.
TEST_F(SurvivingStateTest, IsWholeInLocalSgdOnlyAfterAnAverage) {
  Train({.optimizer = "momentum", .local_sgd_steps = 3}, {},
        [&](SmallStep& step, FullCommunicator&) {
          for (const bool is_whole : {false, false, true, false, false, true}) {
            Step(step);
            EXPECT_EQ(GuardianView(state_).record().is_whole(), is_whole) << progress_.step;
          }
          EXPECT_EQ(GuardianView(state_).Digest(), OwnDigest(step));
        });
}

TEST_F(SurvivingStateTest, KeepsNoOpenFilesPerStep) {
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  Train({.optimizer = "momentum"}, {}, [&](SmallStep& step, FullCommunicator&) {
    Step(step);
    const auto before = files();
    for (int i = 0; i < 5; ++i) Step(step);
    EXPECT_EQ(files(), before);
  });
}

TEST_F(SurvivingStateTest, RefusesATruncatedManifest) {
  Train({}, {}, [&](SmallStep&, FullCommunicator&) {
    const auto bytes = GuardianView(state_).manifest_bytes();
    EXPECT_NO_THROW(ParseManifest(bytes));
    for (size_t size = 0; size < bytes.size(); size += 8)
      EXPECT_THROW(ParseManifest(bytes.first(size)), DataError) << size;
  });
}

TEST_F(SurvivingStateTest, IsOffForWeightsOfDoublePrecision) {
  Train({}, {.dtype = DType::kF64}, [&](SmallStep& step, FullCommunicator&) {
    EXPECT_FALSE(state_.is_on());
    EXPECT_EQ(state_.record().manifest_position, 0);
    step.SwapAverages(true);  // does nothing to the record
    step.SwapAverages(false);
  });
}

// The replica of a rank that dies while an audit repairs it is partly its own, partly that of
// another rank.
TEST(SurvivingStateOfARepairedRank, IsNotWholeUntilTheRepairHasEnded) {
  constexpr int kWrongRank = 1;
  std::atomic<int> copies = 0;
  std::array<uint64_t, 3> digests{};
  RunRanks(3, [&](FullCommunicator& c) {
    SurvivingState state;
    SmallStep step(c, {.optimizer = "momentum", .audit_every_n_steps = 1, .survivors = &state},
                   {.batch_norm = true});
    const RunState after{.step = 1, .epoch = 0, .position = 12, .seed = 3};
    step.ShareState(SomeFacts(), {.step = 0, .epoch = 0, .position = 0, .seed = 3});
    if (c.rank() == kWrongRank) FlipBit(step.store().weights<float>()[7]);
    const GuardianView view(state);
    c.SetObserver([&](const collectives::CollectiveRecord& record) {
      if (record.operation != collectives::Operation::kBroadcast) return;
      EXPECT_EQ(record.what, "audit");
      EXPECT_EQ(view.record().is_whole(), c.rank() != kWrongRank);
      ++copies;
    });
    FormulaSource source({.rank = c.rank(), .size = c.size()});
    step.AnnounceProgress(after);
    step.Run(*source.Next(), {.step = 0, .seed = 3, .learning_rate = 0.05});
    c.SetObserver(nullptr);
    EXPECT_TRUE(view.record().is_whole());
    EXPECT_EQ(view.Checkpoint().step, 1);
    digests[c.rank()] = view.Digest();
    EXPECT_EQ(digests[c.rank()],
              io::ComputeDigest(MakeSnapshot(step.replica(), after, SomeFacts().attributes)));
  });
  EXPECT_GE(copies, 3);
  EXPECT_EQ(digests[kWrongRank], digests[0]);
}

TEST(SharedMemory, IsSeenThroughItsFile) {
  SharedMemory memory;
  const auto small = memory.Append(10), big = memory.Append((size_t{2} << 20) + 1);
  ASSERT_TRUE(small && big);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(big.get()) % (size_t{2} << 20), 0);
  small.get()[9] = std::byte{1};
  big.get()[size_t{2} << 20] = std::byte{2};
  const auto all = MapForReading(memory.file());
  const auto nine = memory.PositionOf(small.get() + 9);
  const auto last = memory.PositionOf(big.get() + (size_t{2} << 20));
  ASSERT_TRUE(nine && last);
  EXPECT_EQ(all[*nine], std::byte{1});
  EXPECT_EQ(all[*last], std::byte{2});
  EXPECT_EQ(memory.PositionOf(small.get() + 10), std::nullopt);
}

}  // namespace
}  // namespace carole::train
