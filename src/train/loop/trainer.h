// The training loop: from the newest checkpoint of train_dir, or from fresh weights, to the last
// step, with logs and checkpoints as TF-Slim's trainer leaves them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "io/checkpoint/checkpoint_writer.h"
#include "io/pipeline/dataset.h"
#include "src/core/error.h"
#include "src/core/files/run_lock.h"
#include "src/optim/lr_schedule.h"
#include "src/train/evaluation/metrics.h"
#include "src/train/loop/straggler.h"
#include "src/train/loop/training_callback.h"
#include "src/train/state/run_metadata.h"
#include "src/train/state/state.h"
#include "src/train/step/train_step.h"

namespace carole::train {

// What to do with a step whose loss or gradient is infinite or no number on some rank. No rank
// applies it either way.
enum class OnNan {
  kStop,
  kSkip  // goes on with the next batch; so many in a row end the run all the same:
};
inline constexpr int kMaxSkippedInARow = 10;

struct TrainerOptions {
  std::string train_dir;            // made when missing; "": nothing is read or written
  int64_t max_number_of_steps = 0;  // 0: no end
  int64_t log_every_n_steps = 10;
  double save_interval_secs = 600;
  int keep_checkpoints = 5;
  int64_t max_bad_records = 0;  // of an epoch, over all ranks
  bool spare_memory = false;  // training waits for checkpoints, which then need no copy of weights
  OnNan on_nan = OnNan::kStop;
  uint64_t seed = 0;                     // of a new run; a resumed one keeps its own
  RunMetadata attributes;                // kept in checkpoints: net, flags, version
  std::optional<io::KerasModel> keras;   // the net as Keras has it, for checkpoints
  std::function<bool()> stop_requested;  // asked each step; on true the run saves and ends

  // Gives a new run its first weights, after they were drawn; rank 0 only.
  std::function<void(VariableStore& store)> warm_start;

  // Collective; nullopt when a rank was asked to stop. It sees rank 0's moving statistics, and
  // moving averages where they are kept.
  std::function<std::optional<Metrics>()> evaluate;
  int64_t eval_every = 0;  // steps, and at the end, each time after a checkpoint; 0: never
  bool keep_best = false;  // the most accurate weights also stay, in train_dir/best

  std::vector<TrainingCallback*> watchers;  // called in this order; they outlive the trainer
};

// Makes the source of batches, which begins at this epoch and position.
using MakeBatchSource = std::function<std::unique_ptr<io::BatchSource>(const RunState& start)>;

// One object on each rank, for one Run(). Rank 0 alone reads and writes train_dir.
class Trainer {
 public:
  // All references outlive this.
  Trainer(TrainStep& step, collectives::Communicator& communicator,
          const optim::LearningRate& learning_rate, MakeBatchSource make_source,
          TrainerOptions options);
  ~Trainer();

  // Trains until max_number_of_steps updates are done (kOk) or a rank was asked to stop (kSaved:
  // run again to go on). Collective. Throws ConfigError when another run has train_dir and when
  // loss or gradients are no longer finite, CommError when ranks differ or are gone, DataError and
  // DiskError of input and checkpoints.
  ExitCode Run();

  const RunState& state() const { return state_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_writer() const { return communicator_.rank() == 0 && !options_.train_dir.empty(); }
  bool finished() const { return is_last(state_.step); }
  // After so many steps.
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
  void GoOnFrom(const RunMetadata& before);
  void RefuseEarlierBest() const;
  bool AskedToStop();
  std::string EvaluatedPath() const;
  bool OwesEvaluation();
  bool MayRunAhead() const;
  io::EpochCounts CountsBefore(int64_t epoch) const;
  void CountValid(io::Batch& batch, int64_t step);
  void BeginStep();
  StepResult EndStep();
  StepResult Step();
  bool Evaluate();
  void KeepBest(double accuracy);
  void Write(io::CheckpointWriter& writer, const std::map<std::string, std::string>& attributes);
  void NoteSkipped(const StepResult& result);
  [[noreturn]] void ThrowDiverged(const std::string& what) const;
  void Save();
  void LogStep(const StepResult& result, double seconds);

  TrainStep& step_;
  collectives::Communicator& communicator_;
  const optim::LearningRate& learning_rate_;
  MakeBatchSource make_source_;
  const TrainerOptions options_;

  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<io::CheckpointWriter> checkpoints_;
  std::unique_ptr<io::CheckpointWriter> best_;
  double best_accuracy_ = -1;
  std::unique_ptr<io::BatchSource> source_;
  RunState source_start_;  // where that began
  StragglerWatch stragglers_;
  RunState state_;
  float rate_ = 0;  // of the last step
  int64_t saved_step_ = -1;
  int skipped_in_a_row_ = 0;
  Clock::time_point last_save_;
  Clock::time_point step_start_;  // or the end of the step before, if that is later
};

}  // namespace carole::train
