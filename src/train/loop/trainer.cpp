// The training loop.
//
// Task. All ranks must make the same decisions at the same step: when to save, evaluate, skip a
// step, and stop. A rank may be asked to stop by a signal at any time, only rank 0 sees train_dir,
// and a device should never wait for the host. A run that was killed must continue as if nothing
// had happened.
//
// State. RunState is (step, epoch, position in the epoch, seed, skipped records). Together with a
// replica it is the whole run, and a checkpoint holds both. `step` counts applied updates. `epoch`
// and `position` count consumed data. So a skipped step consumes its batch but does not count as a
// step. Example: 22 samples in global batches of 4. After 5 steps the state is (step 5, epoch 0,
// position 20). The sixth batch has only 2 samples; after it the state is (step 6, epoch 1,
// position 0).
//
// Phases of Run():
//   1. Start       Rank 0 locks train_dir and restores the newest checkpoint, or draws weights. It
//                  broadcasts replica and state, so the other ranks need not see train_dir.
//   2. Evaluate    only if the previous run was interrupted before its evaluation had ended
//   3. Step        launch and retire steps; in between save and evaluate
//   4. Save        the last checkpoint; then the callbacks' OnTrainEnd
//
// Steps in flight. On a device the trainer launches the next step before it retires the last one.
// It does not do so if the weights will be read in between, for an evaluation or at the end.
// Example: 6 steps, an evaluation every 4.
//   TrainStep:  Begin 0  Begin 1  End 0  Begin 2  End 1  Begin 3  End 2  End 3   -> step 4
//   Trainer:    save and evaluate
//   TrainStep:  Begin 4  Begin 5  End 4  End 5                                   -> step 6
//   Trainer:    save and evaluate
// If a rank requests a save or a stop, the trainer first retires all steps in flight.
//
// Requests. A rank's wish to stop or to save travels with the step's losses in one all-reduce
// (StepInput::request_stop, StepResult::stop). So all ranks learn of it at the same step, and it
// costs no extra message. With local SGD the replicas differ between averaging steps. A save that
// the clock requests at step 5 of local_sgd_steps = 4 then waits until step 8: rank 0 repeats the
// request each step. A clock must not decide when weights are averaged, or runs would differ.
//
// Order of saving and evaluating. An evaluation is preceded by a save, so the checkpoint holds the
// weights that were evaluated. After an evaluation, rank 0 writes its step to train_dir/evaluated.
// A resumed run compares that step with the checkpoint's and so knows whether an evaluation is
// missing. Example: evaluations at steps 2, 4 and 5, killed during the one at step 4. The file says
// 2, the checkpoint says 4: the evaluation at step 4 is run again.
//
// Work of unknown duration (reading records, writing files) runs in RunRankLocal(): other ranks
// wait for it without the deadline of collectives. All such work, and evaluations, are excluded
// from the search for stragglers (StragglerDetector::Pause).
#include "src/train/loop/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>
#include <utility>

#include "collectives/ranks/rank_local_work.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"
#include "src/core/text/parse_number.h"
#include "src/train/loop/device_memory.h"
#include "src/train/step/phase.h"
#include "src/train/survival/claims.h"

namespace carole::train {
namespace {

constexpr char kBestFolder[] = "best";
constexpr char kEvaluatedStepFile[] = "evaluated";      // holds the step last evaluated
constexpr char kAccuracyAttribute[] = "eval_accuracy";  // of checkpoints in kBestFolder

// Returns the accuracy of the checkpoint in `folder`; -1 if there is none or it is damaged.
double AccuracyOfBest(const std::string& folder) {
  try {
    const auto latest = io::ReadLatest(folder);
    if (!latest) return -1;
    const auto found = latest->checkpoint.attributes.find(kAccuracyAttribute);
    return found == latest->checkpoint.attributes.end()
               ? -1
               : ParseNumber<double>(found->second).value_or(-1);
  } catch (const DataError&) {
    LogWarning("train",
               "{}: cannot read the accuracy of the best checkpoint; the next evaluated checkpoint "
               "becomes the best",
               folder);
    return -1;
  }
}

}  // namespace

Trainer::Trainer(TrainStep& step, collectives::Communicator& communicator,
                 collectives::Diagnostics& diagnostics, const optim::LearningRate& learning_rate,
                 MakeBatchSource make_source, TrainerOptions options)
    : step_(step),
      communicator_(communicator),
      diagnostics_(diagnostics),
      learning_rate_(learning_rate),
      make_source_(std::move(make_source)),
      options_(std::move(options)),
      ledger_(communicator, options_.max_bad_records),
      save_clock_(options_.save_clock != nullptr ? *options_.save_clock : own_save_clock_),
      saves_(options_.saves, communicator.num_hosts(), save_clock_),
      stragglers_(communicator, diagnostics) {}

Trainer::~Trainer() = default;

void Trainer::Open() {
  MakeFolder("train", options_.train_dir);
  lock_ = LockForRun(options_.train_dir);
  RemoveTemporaryFiles(options_.train_dir, kEvaluatedStepFile);
  checkpoints_ = std::make_unique<io::CheckpointWriter>(io::CheckpointWriterOptions{
      .folder = options_.train_dir, .keep = options_.keep_checkpoints, .keras = options_.keras});
  if (!options_.keep_best) return;
  const std::string folder = options_.train_dir + "/" + kBestFolder;
  MakeFolder("train", folder);
  best_ = std::make_unique<io::CheckpointWriter>(
      io::CheckpointWriterOptions{.folder = folder, .keep = 1, .keras = options_.keras});
  best_accuracy_ = AccuracyOfBest(folder);
}

void Trainer::Start() {
  const StragglerDetector::Pause pause(stragglers_);
  state_.seed = options_.seed;
  if (options_.low_memory) step_.executable().ReleaseMemory();
  collectives::RunRankLocal(communicator_, "first weights", [this] {
    if (is_writer()) Open();
    if (communicator_.rank() == 0) RestoreOrInitialize();
  });
  BroadcastState(communicator_, step_.replica(), state_);
  ledger_.Share(state_);
  if (state_.step > 0) saved_step_ = state_.step;
  first_step_ = state_.step;
  save_clock_.SetStateBytes(StateBytes(step_.replica()));
  saves_.Begin(state_.step);
  if (is_writer()) saves_.ChooseInterval();
  ShareState();
  for (TrainingCallback* callback : options_.callbacks) callback->OnTrainBegin(state_);
  ReportLedger();
  communicator_.Barrier({.what = "start"});  // rank 0's callbacks may take longer
}

// Lets the guardians of the ranks save the state if a rank is lost.
void Trainer::ShareState() {
  if (!options_.keeps_survivors) return;
  uint64_t run_id = communicator_.rank() == 0 ? MakeRunId() : 0;
  communicator_.Broadcast(std::as_writable_bytes(std::span(&run_id, 1)), 0, {.what = "run"});
  if (is_writer()) SurvivorsFolder(options_.train_dir, run_id).Create();
  const bool is_first_of_host = communicator_.local_rank() == 0;
  if (!options_.work_dir.empty() && is_first_of_host)
    TidyFallbackFolder(options_.work_dir, options_.train_dir, state_.step);
  step_.ShareState({.train_dir = options_.train_dir,
                    .work_dir = options_.work_dir,
                    .run_id = run_id,
                    .rank = communicator_.rank(),
                    .size = communicator_.size(),
                    .keep_checkpoints = options_.keep_checkpoints,
                    .attributes = options_.attributes,
                    .changing_attribute = kLedger,
                    .keras = options_.keras},
                   state_);
}

// Fills the replica of rank 0 from the newest checkpoint, or with initial weights.
void Trainer::RestoreOrInitialize() {
  auto latest = is_writer() ? io::ReadLatest(options_.train_dir) : std::nullopt;
  const bool is_ours = latest.has_value();
  if (is_writer() && !is_ours)
    latest = ReadLatestForeign(options_.train_dir, state_.seed, step_.store());
  if (latest) {
    RequireSameClasses(MetadataReader::kTraining, latest->checkpoint.attributes,
                       options_.attributes, latest->path);
    state_ = Restore(latest->checkpoint, latest->path, step_.replica());
    LogInfo("train", "resuming from {} at step {}", latest->path, state_.step);
    ResumeFrom(latest->checkpoint.attributes);
    ledger_.Load(latest->checkpoint.attributes);
    if (options_.warm_start) {
      LogInfo("train", "Ignoring {} because a checkpoint already exists in {}",
              Option("checkpoint_path"), options_.train_dir);
    }
    if (!is_ours) Write(*checkpoints_, Attributes());  // in case no step is left to do
    return;
  }
  RequireEmptyBestFolder();
  step_.store().Initialize(state_.seed);
  // The moving averages start from the initial weights, before the warm start, as in TF-Slim.
  if (step_.replica().moving_averages != nullptr) step_.replica().moving_averages->Reset();
  if (options_.warm_start) {
    options_.warm_start(step_.store());
  } else {
    LogInfo("train", "starting with fresh weights, seed {}", state_.seed);
  }
}

// Compares the metadata of the restored run with this command's. If the records or their order
// changed, a position in the epoch means other records, so a new epoch begins.
void Trainer::ResumeFrom(const RunMetadata& before) {
  CompareRunMetadata(before, options_.attributes);
  if (options_.seed != state_.seed) {
    LogInfo("train", "{}: ignored: the run was resumed and keeps its seed {}",
            Option("seed", std::to_string(options_.seed)), state_.seed);
  }
  const bool has_other_records = MetadataDiffers(before, options_.attributes, kRecordOrder) ||
                                 MetadataDiffers(before, options_.attributes, kSplit);
  if (!has_other_records || state_.position == 0) return;
  ++state_.epoch;
  state_.position = 0;
  state_.skipped = {};
}

// A new run must not find a best checkpoint: it belongs to an earlier run but would count as this
// run's.
void Trainer::RequireEmptyBestFolder() const {
  const std::string folder = options_.train_dir + "/" + kBestFolder;
  if (!best_ || io::ListCheckpoints(folder).empty()) return;
  throw ConfigError(fmt::format(
      "[train] {}: got checkpoints of an earlier run, want none, as {} has no checkpoint to resume "
      "from; move the folder away or choose another {}",
      folder, options_.train_dir, Option("train_dir")));
}

ExitCode Trainer::Run() {
  LogInfo("", "Starting Session.");  // log lines without a tag have TF-Slim's text
  Start();
  evaluation_pending_ = HasPendingEvaluation();
  bool stop = (!finished() || evaluation_pending_) && AnyRankRequestsStop();
  if (!stop) stop = EvaluatePending();
  if (!finished() && !stop) {
    LogInfo("", "Starting Queues.");
    OpenSource();
  }
  while (!finished() && !stop) stop = Advance();
  source_.reset();
  return Finish();
}

// Runs the pending evaluation, if there is one. Returns true if a rank was asked to stop.
bool Trainer::EvaluatePending() {
  if (evaluation_pending_) evaluation_pending_ = !Evaluate();
  return evaluation_pending_;
}

// Makes one step, and then evaluates and saves if that is due. Returns true if a rank was asked to
// stop.
bool Trainer::Advance() {
  const StepResult result = Step();
  evaluation_pending_ = result.applied && evaluation_is_due(state_.step);
  const bool stop = result.stop || EvaluatePending();
  // A clock must not decide when local SGD averages the weights. Rank 0 repeats its request until
  // the replicas are equal anyway.
  const bool may_save = step_.ReplicasAreEqualAfter(state_.step) && !finished() && !stop;
  if (result.save && may_save) Save();
  return stop;
}

// Saves the last checkpoint and tells the callbacks. Returns the exit code of the run.
ExitCode Trainer::Finish() {
  const bool is_done = finished() && !evaluation_pending_;
  if (const std::string summary = ReportStragglers(); !summary.empty())
    LogInfo("straggler", "{}", summary);
  if (state_.step > first_step_) ReportDeviceMemory();
  if (!is_done) {
    LogInfo("train", "asked to stop: saving at step {}", state_.step);
  } else {
    const bool has_trained = state_.step > first_step_;
    if (!has_trained) LogNoStepTrained();
    LogInfo("", "Stopping Training.");
    LogInfo("", "Finished training!{}",
            has_trained && !options_.train_dir.empty() ? " Saving model to disk." : "");
  }
  Save();
  collectives::RunRankLocal(communicator_, "last checkpoint", [this] {
    if (checkpoints_) checkpoints_->Wait();
    if (best_) best_->Wait();
  });
  for (TrainingCallback* callback : options_.callbacks) callback->OnTrainEnd(state_, is_done);
  if (is_writer()) SurvivorsFolder(options_.train_dir, 0).Remove();
  return is_done ? ExitCode::kOk : ExitCode::kSaved;
}

// This line tells a finished run that was started again from one that has trained.
void Trainer::LogNoStepTrained() const {
  const int64_t last = options_.max_number_of_steps;
  LogInfo("train",
          "no step was trained: the run is at step {}, which is {} {}; to train more, raise {} or "
          "{}; for a new run choose another {}",
          state_.step, state_.step > last ? "past its end at step" : "its last step of", last,
          Option("max_number_of_steps"), Option("train_epochs"), Option("train_dir"));
}

std::string Trainer::EvaluatedPath() const { return options_.train_dir + "/" + kEvaluatedStepFile; }

// Returns true if the evaluation of the restored checkpoint is due but was interrupted by a signal
// or a crash. Collective.
bool Trainer::HasPendingEvaluation() {
  const bool is_due = state_.step > 0 && evaluation_is_due(state_.step);
  if (!is_due) return false;
  bool is_missing = false;
  if (is_writer()) {
    std::ifstream file(EvaluatedPath());
    int64_t step = -1;
    is_missing = !(file >> step) || step != state_.step;
  }
  return CountRanks(communicator_, is_missing, {.what = "pending evaluation"}) > 0;
}

// This may take long: a rank may have to read all records to build the index of their offsets.
void Trainer::OpenSource() {
  const StragglerDetector::Pause pause(stragglers_);
  collectives::RunRankLocal(communicator_, "training data",
                            [this] { source_ = make_source_(state_); });
  ledger_.Open(*source_, state_);
}

// Signals may also arrive before the first step, while weights are read.
bool Trainer::AnyRankRequestsStop() {
  const bool asked = options_.stop_requested && options_.stop_requested();
  return CountRanks(communicator_, asked, {.what = "stop"}) > 0;
}

// Returns false if a rank was asked to stop.
bool Trainer::Evaluate() {
  Save();  // makes the replicas equal, and a checkpoint holds the evaluated weights
  const StragglerDetector::Pause pause(stragglers_);
  const Clock::time_point start = Clock::now();
  for (TrainingCallback* callback : options_.callbacks) callback->OnEvaluationBegin(state_.step);
  step_.SwapAverages(true, [this] { BroadcastStatistics(communicator_, step_.store()); });
  const std::optional<Metrics> metrics = options_.evaluate();
  step_.SwapAverages(false);
  if (!metrics) return false;
  for (TrainingCallback* callback : options_.callbacks)
    callback->OnEvaluationEnd(state_.step, *metrics, SecondsSince(start));
  if (communicator_.rank() == 0) {
    LogInfo("eval", "step {}: {} ({} samples)", state_.step, metrics->Summary(", "),
            metrics->samples());
  }
  collectives::RunRankLocal(communicator_, "best checkpoint", [&] {
    if (best_ && metrics->accuracy() > best_accuracy_) {
      SaveBest(metrics->accuracy());
      best_->Wait();
    }
    if (!is_writer()) return;
    lock_->RequireHeld();
    WriteWholeFile(EvaluatedPath(), fmt::format("{}\n", state_.step));
  });
  return true;
}

void Trainer::SaveBest(double accuracy) {
  checkpoints_->Wait();  // a folder best/ without checkpoints next to it would look like an old run
  best_accuracy_ = accuracy;
  RunMetadata attributes = Attributes();
  attributes[kAccuracyAttribute] = fmt::format("{}", accuracy);  // reads back exactly
  Write(*best_, attributes);
  LogInfo("eval", "best accuracy so far: checkpoint kept in {}/{}", options_.train_dir,
          kBestFolder);
}

RunMetadata Trainer::Attributes() const {
  RunMetadata attributes = options_.attributes;
  if (!ledger_.history().empty()) attributes[kLedger] = ledger_.history().ToJson();
  return attributes;
}

// Writes a snapshot of the replica. Another thread writes a copy, unless low_memory is set: then
// this waits, and no copy is made if the weights are in host memory.
void Trainer::Write(io::CheckpointWriter& writer, const RunMetadata& attributes) {
  lock_->RequireHeld();
  if (options_.low_memory) step_.executable().ReleaseMemory();
  const bool live = options_.low_memory && !step_.store().backend().has_own_memory();
  writer.Write(MakeSnapshot(step_.replica(), state_, attributes,
                            live ? SnapshotKind::kLive : SnapshotKind::kCopy));
  if (options_.low_memory) writer.Wait();
}

// Returns true if another step may be launched before the one in flight ends: nothing that is due
// after that one reads or changes the weights.
bool Trainer::CanLaunchAhead() const {
  const int64_t next = state_.step + 1;
  return step_.CanRunAhead() && !is_last(next) && !evaluation_is_due(next);
}

void Trainer::BeginStep() {
  const int64_t step = state_.step + step_.num_in_flight();
  for (TrainingCallback* callback : options_.callbacks) callback->OnStepBegin(step);
  if (checkpoints_) saves_.SetWritten(checkpoints_->last_written());
  const Clock::time_point start = Clock::now();
  if (step_.num_in_flight() == 0) step_start_ = start;
  EnterPhase(diagnostics_, collectives::RankPhase::kInput, step);
  const io::Batch* next = source_->Next();
  CAROLE_CHECK(next != nullptr, "the training data ended at step {}", step);
  io::Batch batch = *next;
  ledger_.BeginBatch(batch, step);
  if (batch.next_epoch != batch.epoch) KeepLedger(ledger_.AfterPlanned(batch), batch.next_epoch);
  step_.AnnounceProgress(After(batch));
  step_.Begin(
      batch, {.step = step,
              .seed = state_.seed,
              .learning_rate = learning_rate_.At(step),
              .request_stop = options_.stop_requested && options_.stop_requested(),
              .request_save = is_writer() && (checkpoints_->HasFailed() ||  // Save() will report it
                                              saves_.IsDue()),
              .input_ms = SecondsSince(start) * 1e3});
}

// Returns the progress after a step with this batch that is applied.
RunState Trainer::After(const io::Batch& batch) const {
  const bool is_last_of_epoch = batch.next_epoch != batch.epoch;
  return {.step = state_.step + 1,
          .epoch = batch.next_epoch,
          .position = batch.next_position,
          .seed = state_.seed,
          .skipped = is_last_of_epoch ? io::SkippedRecords{} : batch.all_skipped};
}

// Retires one step. If a rank requests a save or a stop, retires all steps in flight.
StepResult Trainer::Step() {
  if (step_.num_in_flight() == 0) BeginStep();
  if (CanLaunchAhead()) BeginStep();
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
  last_rate_ = learning_rate_.At(state_.step);
  const StepResult result = step_.End();
  if (ledger_.EndBatch(result.batch, state_)) ReportLedger();
  const double seconds = SecondsSince(std::exchange(step_start_, Clock::now()));
  if (!result.applied) {
    HandleSkippedStep(result);
    return result;
  }
  skipped_in_a_row_ = 0;
  ++state_.step;
  save_clock_.AddStep(seconds);
  if (!std::isfinite(result.total_loss))
    ThrowDiverged(fmt::format("the regularization loss: {}", result.regularization_loss));
  if (stragglers_.AddStep({.step = seconds * 1e3,
                           .input = result.input_ms,
                           .compute = result.compute_ms,
                           .waited = result.device_wait_ms},
                          state_.step))
    ReportStragglers();
  LogStep(result, seconds);
  constexpr int64_t kStepsBeforeMemory = 5;
  if (state_.step == first_step_ + kStepsBeforeMemory) ReportDeviceMemory();
  for (TrainingCallback* callback : options_.callbacks)
    callback->OnStepEnd(
        {state_, result, *source_, last_rate_, seconds, saves_.Unsaved(state_.step)});
  return result;
}

// By now, a step has been captured, and libraries have loaded all their kernels. Collective.
void Trainer::ReportDeviceMemory() {
  if (std::exchange(memory_is_reported_, true)) return;
  const std::string text = DescribeDeviceMemory(GatherDeviceMemory(communicator_, step_));
  if (text.empty()) return;
  LogInfo("memory", "in use on devices: {}", text);
  for (TrainingCallback* callback : options_.callbacks) callback->OnDeviceMemory(text);
}

// Tells the callbacks which ranks have delayed the others. Returns "" if there are none.
std::string Trainer::ReportStragglers() {
  std::string summary = stragglers_.Summary();
  if (summary.empty()) return summary;
  for (TrainingCallback* callback : options_.callbacks) callback->OnStragglers(summary);
  return summary;
}

// All ranks make the same decision, as all have the same reduced losses and gradients.
void Trainer::HandleSkippedStep(const StepResult& result) {
  if (result.overflowed) {
    LogInfo("train", "step {}: gradients overflowed: step skipped; new loss scale {:.0f}",
            state_.step + 1, step_.loss_scale().value());
    return;
  }
  if (options_.on_nan == OnNan::kStop) ThrowDiverged(result.skip_reason);
  if (++skipped_in_a_row_ >= kMaxSkippedInARow)
    ThrowDiverged(
        fmt::format("{}, the last of {} steps in a row", result.skip_reason, kMaxSkippedInARow));
  if (communicator_.rank() == 0) {
    LogWarning("train", "step {}: not finite: {}; all ranks skip this step", state_.step + 1,
               result.skip_reason);
  }
}

// Throws on every rank, as loss and weights are the same everywhere.
void Trainer::ThrowDiverged(const std::string& what) const {
  const LossScale& scale = step_.loss_scale();
  const bool is_scaled = scale.value() > 1 && !scale.is_dynamic();
  throw ConfigError(fmt::format(
      "[train] after step {}: not finite: {}; the run has diverged: try a {} below {:g}{}{}",
      state_.step, what, Option("learning_rate"), last_rate_,
      is_scaled ? fmt::format(", or a {} below {:g}", Option("loss_scale"), scale.value()) : "",
      options_.train_dir.empty() ? ""
      : saved_step_ < 0          ? "; there is no checkpoint yet"
                                 : "; the last checkpoint is intact"));
}

// Weights that differ between ranks, or that are not finite, never get into a checkpoint.
void Trainer::Save() {
  if (saved_step_ == state_.step) return;
  const StragglerDetector::Pause pause(stragglers_);
  saves_.BeginSave();
  EnterPhase(diagnostics_, collectives::RankPhase::kSaving, state_.step);
  step_.AverageReplicas(state_.step);
  VerifyWeights(communicator_, step_.store(), state_.step);
  if (!WeightsAreFinite(step_.store())) ThrowDiverged("the weights");
  ledger_.Collect(state_.step);
  ReportLedger();
  collectives::RunRankLocal(communicator_, "checkpoint", [this] {
    if (!is_writer()) return;
    LogInfo("", "Saving checkpoint to path {}",
            io::CheckpointPath(options_.train_dir, state_.step));
    Write(*checkpoints_, Attributes());
  });
  saved_step_ = state_.step;
  const double seconds = saves_.EndSave(state_.step);
  if (is_writer() && !finished()) {
    saves_.LogSave();
    saves_.ChooseInterval();
  }
  for (TrainingCallback* callback : options_.callbacks) callback->OnSave(state_.step, seconds);
  ShareSaveCosts();
}

// Tells all ranks what a save costs: only rank 0 measures it, but each rank has a time limit. Also
// a barrier after the save.
void Trainer::ShareSaveCosts() {
  if (checkpoints_) saves_.SetWritten(checkpoints_->last_written());
  SaveCosts costs = save_clock_.costs();
  communicator_.Broadcast(std::as_writable_bytes(std::span(&costs, 1)), 0,
                          {.what = "save costs", .step = state_.step});
  if (!is_writer()) save_clock_.Adopt(costs);
  ReachPoint(diagnostics_, "barrier", state_.step);
  communicator_.Barrier({.what = "saved", .step = state_.step});
}

// Keeps the ledger for a checkpoint by a guardian at a progress in this epoch.
void Trainer::KeepLedger(const EpochHistory& history, int64_t epoch) {
  if (options_.keeps_survivors && !history.empty()) step_.KeepText(history.ToJson(), epoch);
}

void Trainer::ReportLedger() {
  if (ledger_.history().empty()) return;
  KeepLedger(ledger_.history(), state_.epoch);
  for (TrainingCallback* callback : options_.callbacks) callback->OnLedger(ledger_.history());
}

void Trainer::LogStep(const StepResult& result, double seconds) {
  if (communicator_.rank() != 0) return;
  if (options_.log_every_n_steps > 0 && state_.step % options_.log_every_n_steps == 0) {
    LogInfo("", "global step {}: loss = {:.4f} ({:.3f} sec/step)", state_.step, result.total_loss,
            seconds);
  }
}

}  // namespace carole::train
