// The training loop. It starts from the newest checkpoint in train_dir, or from initial weights,
// and runs to the last step. Its log lines and checkpoints are those of TF-Slim's trainer.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/diagnostics.h"
#include "io/checkpoint/checkpoint_writer.h"
#include "io/pipeline/dataset.h"
#include "src/core/error.h"
#include "src/core/files/run_lock.h"
#include "src/optim/lr_schedule.h"
#include "src/train/evaluation/metrics.h"
#include "src/train/loop/epoch_ledger.h"
#include "src/train/loop/save_clock.h"
#include "src/train/loop/save_schedule.h"
#include "src/train/loop/straggler.h"
#include "src/train/loop/training_callback.h"
#include "src/train/state/run_metadata.h"
#include "src/train/state/state.h"
#include "src/train/step/train_step.h"

namespace carole::train {

// The reaction to a step whose loss or gradient is infinite or NaN on some rank. No rank applies
// such a step in either case.
enum class OnNan {
  kStop,  // ends the run
  kSkip   // continues with the next batch
};
// This many skipped steps in a row end the run even with OnNan::kSkip.
inline constexpr int kMaxSkippedInARow = 10;

struct TrainerOptions {
  std::string train_dir;            // created if missing; "": nothing is read or written
  int64_t max_number_of_steps = 0;  // 0: no limit
  int64_t log_every_n_steps = 10;
  SaveScheduleOptions saves;
  SaveClock* save_clock = nullptr;  // measures steps and saves; null: one of the trainer's own
  int keep_checkpoints = 5;
  int64_t max_bad_records = 0;   // per epoch, over all ranks
  bool keeps_survivors = false;  // ShareState() is called on the step; needs StepOptions::survivors
  std::string work_dir;          // for survivors if train_dir cannot be written; "": none
  bool low_memory = false;       // checkpoints are written without a copy; training waits for them
  OnNan on_nan = OnNan::kStop;
  uint64_t seed = 0;                     // of a new run; a resumed run keeps its own
  RunMetadata attributes;                // stored in checkpoints: net, flags, version
  std::optional<io::KerasModel> keras;   // description of the net for Keras, for checkpoints
  std::function<bool()> stop_requested;  // polled each step; if true, the run saves and ends

  // Replaces the initial weights of a new run. Called on rank 0, after they were drawn.
  std::function<void(VariableStore& store)> warm_start;

  // Evaluates the net. Collective. Returns nullopt if a rank was asked to stop. While it runs, the
  // store of every rank holds rank 0's running statistics, and the moving averages of the weights
  // instead of the weights if the run keeps them.
  std::function<std::optional<Metrics>()> evaluate;
  // Steps between evaluations; the end of the run is evaluated as well. The trainer saves a
  // checkpoint before each evaluation. 0: never.
  int64_t eval_every = 0;
  bool keep_best = false;  // also keep the most accurate weights, in train_dir/best

  std::vector<TrainingCallback*> callbacks;  // called in this order; must outlive the trainer
};

// Makes a source of batches that starts at the epoch and position of `start`.
using MakeBatchSource = std::function<std::unique_ptr<io::BatchSource>(const RunState& start)>;

// One object on each rank, for one call of Run(). Only rank 0 reads and writes train_dir.
class Trainer {
 public:
  // All references must outlive this.
  Trainer(TrainStep& step, collectives::Communicator& communicator,
          collectives::Diagnostics& diagnostics, const optim::LearningRate& learning_rate,
          MakeBatchSource make_source, TrainerOptions options);
  ~Trainer();

  // Trains until max_number_of_steps updates are done (returns kOk), or until a rank is asked to
  // stop (returns kSaved: run again to resume). Collective.
  // Throws ConfigError if another run uses train_dir, or if loss or gradients are not finite;
  // CommError if replicas differ or a rank is gone; DataError and DiskError from input and
  // checkpoints.
  ExitCode Run();

  const RunState& state() const { return state_; }
  // Returns everything that a checkpoint says about the run: its metadata, and the ledger of epochs
  // as of the last save. The same on all ranks; does not communicate.
  RunMetadata Attributes() const;
  // The accuracy of the weights in train_dir/best; -1 if there are none. For rank 0.
  double best_accuracy() const { return best_accuracy_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_writer() const { return communicator_.rank() == 0 && !options_.train_dir.empty(); }
  bool finished() const { return is_last(state_.step); }
  // Returns true if the run ends after this many steps.
  bool is_last(int64_t step) const {
    return options_.max_number_of_steps > 0 && step >= options_.max_number_of_steps;
  }
  bool evaluation_is_due(int64_t step) const {
    return options_.eval_every > 0 && (is_last(step) || step % options_.eval_every == 0);
  }
  void Open();
  void Start();
  void RestoreOrInitialize();
  void OpenSource();
  void ShareState();
  RunState After(const io::Batch& batch) const;
  void ResumeFrom(const RunMetadata& before);
  void RequireEmptyBestFolder() const;
  bool AnyRankRequestsStop();
  std::string EvaluatedPath() const;
  bool HasPendingEvaluation();
  bool EvaluatePending();
  bool Advance();
  ExitCode Finish();
  void LogNoStepTrained() const;
  bool CanLaunchAhead() const;
  void BeginStep();
  StepResult EndStep();
  StepResult Step();
  bool Evaluate();
  void SaveBest(double accuracy);
  void Write(io::CheckpointWriter& writer, const RunMetadata& attributes);
  std::string ReportStragglers();
  void ReportDeviceMemory();
  void HandleSkippedStep(const StepResult& result);
  [[noreturn]] void ThrowDiverged(const std::string& what) const;
  void Save();
  void ShareSaveCosts();
  void KeepLedger(const EpochHistory& history, int64_t epoch);
  void ReportLedger();
  void LogStep(const StepResult& result, double seconds);

  TrainStep& step_;
  collectives::Communicator& communicator_;
  collectives::Diagnostics& diagnostics_;
  const optim::LearningRate& learning_rate_;
  MakeBatchSource make_source_;
  const TrainerOptions options_;

  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<io::CheckpointWriter> checkpoints_;
  std::unique_ptr<io::CheckpointWriter> best_;
  double best_accuracy_ = -1;
  std::unique_ptr<io::BatchSource> source_;
  EpochLedger ledger_;
  SaveClock own_save_clock_;
  SaveClock& save_clock_;
  SaveSchedule saves_;
  StragglerDetector stragglers_;
  RunState state_;
  float last_rate_ = 0;  // learning rate of the last step
  int64_t saved_step_ = -1;
  bool memory_is_reported_ = false;  // of the devices
  int64_t first_step_ = 0;           // the step at which this call of Run() started
  bool evaluation_pending_ = false;  // the weights of this step are still to be evaluated
  int skipped_in_a_row_ = 0;
  Clock::time_point step_start_;  // start of the current step, or end of the previous one if later
};

}  // namespace carole::train
