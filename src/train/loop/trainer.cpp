#include "src/train/loop/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "collectives/ranks/rank_local_work.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/core/text/parse_number.h"
#include "src/train/loop/epoch_report.h"
#include "src/train/step/phase.h"

namespace carole::train {
namespace {

constexpr char kBestFolder[] = "best";
constexpr char kEvaluated[] = "evaluated";     // the step whose evaluation was the last that ended
constexpr char kAccuracy[] = "eval_accuracy";  // attribute of what lies there

// -1: nothing is there, or nothing whole.
double AccuracyOfBest(const std::string& folder) {
  try {
    const auto latest = io::ReadLatest(folder);
    if (!latest) return -1;
    const auto found = latest->checkpoint.attributes.find(kAccuracy);
    return found == latest->checkpoint.attributes.end()
               ? -1
               : ParseNumber<double>(found->second).value_or(-1);
  } catch (const DataError&) {
    LogWarning("train", "{}: how good the best weights were is not known: the next ones are taken",
               folder);
    return -1;
  }
}

}  // namespace

Trainer::Trainer(TrainStep& step, collectives::Communicator& communicator,
                 const optim::LearningRate& learning_rate, MakeBatchSource make_source,
                 TrainerOptions options)
    : step_(step),
      communicator_(communicator),
      learning_rate_(learning_rate),
      make_source_(std::move(make_source)),
      options_(std::move(options)),
      stragglers_(communicator) {}

Trainer::~Trainer() = default;

void Trainer::Open() {
  MakeFolder("train", options_.train_dir);
  lock_ = std::make_unique<RunLock>(options_.train_dir);
  RemoveLeftovers(options_.train_dir, kEvaluated);
  checkpoints_ = std::make_unique<io::CheckpointWriter>(io::CheckpointWriterOptions{
      .folder = options_.train_dir, .keep = options_.keep_checkpoints, .keras = options_.keras});
  if (!options_.keep_best) return;
  const std::string folder = options_.train_dir + "/" + kBestFolder;
  MakeFolder("train", folder);
  best_ = std::make_unique<io::CheckpointWriter>(
      io::CheckpointWriterOptions{.folder = folder, .keep = 1, .keras = options_.keras});
  best_accuracy_ = AccuracyOfBest(folder);
}

// Rank 0 reads the checkpoint or draws first weights; the others get them from it, so only rank 0
// needs to see train_dir.
void Trainer::Start() {
  const StragglerWatch::Pause pause(stragglers_);
  state_.seed = options_.seed;
  if (options_.spare_memory) step_.executable().ReleaseMemory();
  collectives::RunRankLocal(communicator_, "first weights", [this] {
    if (is_writer()) Open();
    if (communicator_.rank() == 0) RestoreOrInitialize();
  });
  BroadcastState(communicator_, step_.replica(), state_);
  if (state_.step > 0) saved_step_ = state_.step;
  last_save_ = Clock::now();
  for (TrainingCallback* watcher : options_.watchers) watcher->Started(state_);
  communicator_.Barrier({.what = "start"});  // rank 0's watchers may have more to do
}

// With the last checkpoint, or first weights.
void Trainer::RestoreOrInitialize() {
  auto latest = is_writer() ? io::ReadLatest(options_.train_dir) : std::nullopt;
  const bool is_ours = latest.has_value();
  if (is_writer() && !is_ours)
    latest = ReadLatestForeign(options_.train_dir, state_.seed, step_.store());
  if (latest) {
    state_ = Restore(latest->checkpoint, latest->path, step_.replica());
    LogInfo("train", "resuming from {} at step {}", latest->path, state_.step);
    GoOnFrom(latest->checkpoint.attributes);
    if (options_.warm_start) {
      LogInfo("train", "Ignoring --checkpoint_path because a checkpoint already exists in {}",
              options_.train_dir);
    }
    if (!is_ours) Write(*checkpoints_, options_.attributes);  // there may be no step left to do
    return;
  }
  RefuseEarlierBest();
  step_.store().Initialize(state_.seed);
  LogInfo("train", "starting with fresh weights, seed {}", state_.seed);
  // Before weights are restored, as in TF-Slim, whose averages begin with first weights.
  if (step_.replica().averages != nullptr) step_.replica().averages->Reset();
  if (options_.warm_start) options_.warm_start(step_.store());
}

// A place in an epoch of other records, or of these in another order, would lose some of them.
void Trainer::GoOnFrom(const RunMetadata& before) {
  CompareRunMetadata(before, options_.attributes);
  if (options_.seed != state_.seed) {
    LogInfo("train", "the run keeps the seed it began with, {}; this command's, {}, is not used",
            state_.seed, options_.seed);
  }
  const bool others = Differ(before, options_.attributes, kRecordOrder) ||
                      Differ(before, options_.attributes, kSplit);
  if (!others || state_.position == 0) return;
  ++state_.epoch;
  state_.position = 0;
  state_.skipped = {};
}

// The most accurate weights of a run that is gone would be taken for this one's.
void Trainer::RefuseEarlierBest() const {
  const std::string folder = options_.train_dir + "/" + kBestFolder;
  if (!best_ || io::ListCheckpoints(folder).empty()) return;
  throw ConfigError(fmt::format(
      "[train] {}: holds checkpoints of an earlier run, and {} none to go on from; move "
      "it away, or choose another --train_dir",
      folder, options_.train_dir));
}

ExitCode Trainer::Run() {
  LogInfo("", "Starting Session.");  // here and below, TF-Slim's words
  Start();
  bool owes_evaluation = OwesEvaluation();
  bool stop = (!finished() || owes_evaluation) && AskedToStop();
  const auto evaluate = [&] {
    stop = !Evaluate();
    owes_evaluation = stop;
  };
  if (owes_evaluation && !stop) evaluate();
  if (!finished() && !stop) {
    LogInfo("", "Starting Queues.");
    OpenSource();
  }
  while (!finished() && !stop) {
    const StepResult result = Step();
    stop = result.stop;
    owes_evaluation = result.applied && evaluation_is_due(state_.step);
    if (owes_evaluation && !stop) evaluate();
    // A clock must not decide when local SGD sums: the rank asks again until replicas meet.
    const bool may_save = step_.ReplicasMeet(state_.step) && !finished() && !stop;
    if (result.save && may_save) Save();
  }
  source_.reset();
  const bool is_done = finished() && !owes_evaluation;
  if (!is_done) {
    LogInfo("train", "asked to stop: saving at step {}", state_.step);
  } else {
    LogInfo("", "Stopping Training.");
    LogInfo("", "Finished training!{}", options_.train_dir.empty() ? "" : " Saving model to disk.");
  }
  Save();
  collectives::RunRankLocal(communicator_, "last checkpoint", [this] {
    if (checkpoints_) checkpoints_->Wait();
    if (best_) best_->Wait();
  });
  for (TrainingCallback* watcher : options_.watchers) watcher->Ended(state_, is_done);
  return is_done ? ExitCode::kOk : ExitCode::kSaved;
}

std::string Trainer::EvaluatedPath() const { return options_.train_dir + "/" + kEvaluated; }

// Whether the run went on from a checkpoint whose evaluation a signal or an accident cut.
bool Trainer::OwesEvaluation() {
  const bool may_owe = state_.step > 0 && evaluation_is_due(state_.step);
  if (!may_owe) return false;
  bool owes = false;
  if (is_writer()) {
    std::ifstream file(EvaluatedPath());
    int64_t step = -1;
    owes = !(file >> step) || step != state_.step;
  }
  return CountRanks(communicator_, owes, {.what = "evaluation that is owed"}) > 0;
}

// A rank may have to look through all records for where they begin.
void Trainer::OpenSource() {
  const StragglerWatch::Pause pause(stragglers_);
  collectives::RunRankLocal(communicator_, "training data",
                            [this] { source_ = make_source_(state_); });
  source_start_ = state_;
}

// Signals come while data is looked through and weights are read, too.
bool Trainer::AskedToStop() {
  const bool asked = options_.stop_requested && options_.stop_requested();
  return CountRanks(communicator_, asked, {.what = "stop"}) > 0;
}

// False when a rank was asked to stop.
bool Trainer::Evaluate() {
  Save();  // so that a file holds what is evaluated, and ranks have the same
  const StragglerWatch::Pause pause(stragglers_);
  const Clock::time_point start = Clock::now();
  for (TrainingCallback* watcher : options_.watchers) watcher->EvaluationBegins(state_.step);
  const ReplicaView replica = step_.replica();
  if (replica.averages != nullptr) replica.averages->Swap();
  BroadcastStatistics(communicator_, replica.store);
  const std::optional<Metrics> metrics = options_.evaluate();
  if (replica.averages != nullptr) replica.averages->Swap();
  if (!metrics) return false;
  for (TrainingCallback* watcher : options_.watchers)
    watcher->Evaluated(state_.step, *metrics, SecondsSince(start));
  if (communicator_.rank() == 0) {
    LogInfo("eval", "step {}: {} ({} samples)", state_.step, metrics->Summary(", "),
            metrics->samples());
  }
  collectives::RunRankLocal(communicator_, "best checkpoint", [&] {
    if (best_ && metrics->accuracy() > best_accuracy_) {
      KeepBest(metrics->accuracy());
      best_->Wait();
    }
    if (!is_writer()) return;
    lock_->RequireHeld();
    WriteWholeFile(EvaluatedPath(), fmt::format("{}\n", state_.step));
  });
  return true;
}

void Trainer::KeepBest(double accuracy) {
  checkpoints_->Wait();  // what is best/ alone is taken for an earlier run's
  best_accuracy_ = accuracy;
  std::map<std::string, std::string> attributes = options_.attributes;
  attributes[kAccuracy] = fmt::format("{}", accuracy);  // equal, not nearly, when it is read again
  Write(*best_, attributes);
  LogInfo("eval", "the best so far: kept in {}/{}", options_.train_dir, kBestFolder);
}

// Where memory is short, without a copy.
void Trainer::Write(io::CheckpointWriter& writer,
                    const std::map<std::string, std::string>& attributes) {
  lock_->RequireHeld();
  if (options_.spare_memory) step_.executable().ReleaseMemory();
  const bool live = options_.spare_memory && step_.store().backend().on_host();
  writer.Write(MakeSnapshot(step_.replica(), state_, attributes,
                            live ? SnapshotKind::kLive : SnapshotKind::kCopy));
  if (options_.spare_memory) writer.Wait();
}

// Whether what is due after the step under way leaves the weights alone.
bool Trainer::MayRunAhead() const {
  const int64_t next = state_.step + 1;
  return step_.CanRunAhead() && !is_last(next) && !evaluation_is_due(next);
}

void Trainer::BeginStep() {
  const int64_t step = state_.step + step_.num_in_flight();
  for (TrainingCallback* watcher : options_.watchers) watcher->StepBegins(step);
  const Clock::time_point start = Clock::now();
  if (step_.num_in_flight() == 0) step_start_ = start;
  EnterPhase(communicator_, collectives::RankPhase::kInput, step);
  const io::Batch* next = source_->Next();
  CAROLE_CHECK(next != nullptr, "the training data ended at step {}", step);
  io::Batch batch = *next;
  if (options_.max_bad_records > 0) {
    CountValid(batch, step);
  } else {
    batch.all_skipped = CountsBefore(batch.epoch).skipped;
  }
  step_.Begin(batch,
              {.step = step,
               .seed = state_.seed,
               .learning_rate = learning_rate_.At(step),
               .ask_stop = options_.stop_requested && options_.stop_requested(),
               .ask_save = is_writer() && (checkpoints_->HasFailed() ||  // told by the next save
                                           SecondsSince(last_save_) >= options_.save_interval_secs),
               .input_ms = SecondsSince(start) * 1e3});
}

// What was seen of an epoch before the source was made.
io::EpochCounts Trainer::CountsBefore(int64_t epoch) const {
  if (epoch != source_start_.epoch) return {};
  io::EpochCounts counts{.skipped = source_start_.skipped};
  counts.seen = source_start_.position - counts.num_skipped();
  return counts;
}

// Records that were skipped count in no mean, and are few.
void Trainer::CountValid(io::Batch& batch, int64_t step) {
  struct Counts {
    int64_t valid;  // of the batch
    io::EpochCounts epoch;
  };
  const Counts mine{batch.valid, batch.counts};
  io::EpochCounts all = CountsBefore(batch.epoch);
  int64_t valid = 0;
  batch.most_valid = 0;
  for (const Counts& rank :
       AllGather(communicator_, mine, {.what = "valid samples", .step = step})) {
    valid += rank.valid;
    batch.most_valid = std::max(batch.most_valid, rank.valid);
    all.Add(rank.epoch);
  }
  batch.global_valid = std::max<int64_t>(1, valid);
  batch.all_skipped = all.skipped;
  RequireFewSkipped(all.num_skipped(), options_.max_bad_records);
}

// One update; all that are under way where a rank asks to save or to stop.
StepResult Trainer::Step() {
  if (step_.num_in_flight() == 0) BeginStep();
  if (MayRunAhead()) BeginStep();
  StepResult result = EndStep();
  bool stop = result.stop, save = result.save;
  while ((stop || save) && step_.num_in_flight() > 0) {
    result = EndStep();
    stop |= result.stop;
    save |= result.save;
  }
  result.stop = stop;
  result.save = save;
  return result;
}

StepResult Trainer::EndStep() {
  rate_ = learning_rate_.At(state_.step);
  const StepResult result = step_.End();
  const io::Batch& batch = result.batch;
  state_.epoch = batch.next_epoch;
  state_.position = batch.next_position;
  const bool is_last_of_epoch = batch.next_epoch != batch.epoch;
  state_.skipped = is_last_of_epoch ? io::SkippedRecords{} : batch.all_skipped;
  if (is_last_of_epoch) ReportEpoch(batch, *source_, CountsBefore(batch.epoch), communicator_);
  const double seconds = SecondsSince(std::exchange(step_start_, Clock::now()));
  if (!result.applied) {
    NoteSkipped(result);
    return result;
  }
  skipped_in_a_row_ = 0;
  ++state_.step;
  if (!std::isfinite(result.total_loss))
    ThrowDiverged(fmt::format("the regularization loss: {}", result.regularization_loss));
  stragglers_.AddStep({.step = seconds * 1e3,
                       .input = result.input_ms,
                       .compute = result.forward_ms + result.backward_ms + result.optimizer_ms},
                      state_.step);
  LogStep(result, seconds);
  for (TrainingCallback* watcher : options_.watchers)
    watcher->StepEnded({state_, result, *source_, rate_, seconds});
  return result;
}

// Every rank comes to the same decision, as all have the same sums.
void Trainer::NoteSkipped(const StepResult& result) {
  if (result.overflowed) {
    LogInfo("train", "step {}: gradients overflow: not applied; the loss scale is {:.0f} now",
            state_.step + 1, step_.loss_scale().value());
    return;
  }
  if (options_.on_nan == OnNan::kStop) ThrowDiverged(result.blame);
  if (++skipped_in_a_row_ >= kMaxSkippedInARow)
    ThrowDiverged(
        fmt::format("{}, the last of {} steps in a row", result.blame, kMaxSkippedInARow));
  if (communicator_.rank() == 0) {
    LogWarning("train", "step {}: not finite: {}; no rank applies it", state_.step + 1,
               result.blame);
  }
}

// On every rank, as loss and weights are the same everywhere.
void Trainer::ThrowDiverged(const std::string& what) const {
  throw ConfigError(fmt::format(
      "[train] after step {}: not finite: {}; the run has diverged: try a --learning_rate below "
      "{:g}{}",
      state_.step, what, rate_,
      options_.train_dir.empty() ? "" : "; the last checkpoint is untouched"));
}

// Weights that have drifted apart or diverged are found before they get into a checkpoint.
void Trainer::Save() {
  if (saved_step_ == state_.step) return;
  const StragglerWatch::Pause pause(stragglers_);
  const Clock::time_point start = Clock::now();
  EnterPhase(communicator_, collectives::RankPhase::kSaving, state_.step);
  step_.Consolidate(state_.step);
  VerifyWeights(communicator_, step_.store(), state_.step);
  if (!WeightsAreFinite(step_.store())) ThrowDiverged("the weights");
  collectives::RunRankLocal(communicator_, "checkpoint", [this] {
    if (!is_writer()) return;
    LogInfo("", "Saving checkpoint to path {}",
            io::CheckpointPath(options_.train_dir, state_.step));
    Write(*checkpoints_, options_.attributes);
  });
  saved_step_ = state_.step;
  last_save_ = Clock::now();
  for (TrainingCallback* watcher : options_.watchers)
    watcher->Saved(state_.step, SecondsSince(start));
  communicator_.Barrier({.what = "saved", .step = state_.step});
}

void Trainer::LogStep(const StepResult& result, double seconds) {
  if (communicator_.rank() != 0) return;
  if (options_.log_every_n_steps > 0 && state_.step % options_.log_every_n_steps == 0) {
    LogInfo("", "global step {}: loss = {:.4f} ({:.3f} sec/step)", state_.step, result.total_loss,
            seconds);
  }
}

}  // namespace carole::train
