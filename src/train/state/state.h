// The state of a run: to and from checkpoints, and from rank 0 to all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "collectives/communicator.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/pipeline/dataset.h"
#include "src/graph/variable_store.h"
#include "src/optim/moving_averages.h"
#include "src/optim/optimizer.h"
#include "src/train/state/loss_scale.h"

namespace carole::train {

// References to the parts of a rank's replica that a checkpoint stores. Owns nothing; see Replica
// (src/train/step/replica.h) for the owner.
struct ReplicaView {
  VariableStore& store;
  optim::Optimizer& optimizer;
  optim::MovingAverages* moving_averages = nullptr;  // of all variables; null if none are kept
  LossScale* loss_scale = nullptr;                   // null if there is none
};

// The moving average of VARIABLE is called "VARIABLE/ExponentialMovingAverage" in a checkpoint, as
// in TensorFlow.
inline constexpr char kMovingAverageSuffix[] = "/ExponentialMovingAverage";

// The progress of a run. Together with a replica this is its whole state. Trivially copyable, as it
// is broadcast.
struct RunState {
  int64_t step = 0;      // updates done
  int64_t epoch = 0;     // epoch of the next batch
  int64_t position = 0;  // samples of that epoch that all ranks together have consumed
  uint64_t seed = 0;
  io::SkippedRecords skipped{};  // how many of these samples were skipped, by reason
};

// Returns the bytes that a checkpoint of this replica holds, up to scalars.
size_t StateBytes(const ReplicaView& replica);

// Stores the progress in a checkpoint.
void StoreProgress(const RunState& progress, io::Checkpoint& checkpoint);

// kCopy: the snapshot holds copies of all values. kLive: it reads values only when it is written,
// so the replica must outlive the snapshot and must not change until then.
enum class SnapshotKind : uint8_t { kCopy, kLive };

// Makes a checkpoint of the whole state, with TensorFlow's names, shapes and element order. It also
// stores `attributes` (run metadata).
io::Checkpoint MakeSnapshot(const ReplicaView& replica, const RunState& state,
                            const std::map<std::string, std::string>& attributes,
                            SnapshotKind kind = SnapshotKind::kCopy);

// Restores variables, optimizer slots and moving averages of the weights from a checkpoint, and
// returns the run state. If the run has kept no moving averages so far, they start from the
// restored weights, and the log says so. `path` is for error messages.
// Throws DataError that names the variables that do not fit, or a slot that is missing, as after a
// change of optimizer. The replica may then be partly overwritten.
RunState Restore(const io::Checkpoint& checkpoint, const std::string& path,
                 const ReplicaView& replica);

// Reads the latest checkpoint of another program (such as TensorFlow) in `folder`. Returns nullopt
// if there is none, or if it has no global step. The run resumes at the start of an epoch, with
// `seed`, as such files hold no position in the data.
std::optional<io::LoadedCheckpoint> ReadLatestForeign(const std::string& folder, uint64_t seed,
                                                      const VariableStore& store);

// Copies rank 0's replica and state to every rank and checks that they arrived. Collective.
void BroadcastState(collectives::Communicator& communicator, const ReplicaView& replica,
                    RunState& state);

// Copies rank 0's weights and running statistics to every rank. Collective.
void BroadcastVariables(collectives::Communicator& communicator, const VariableStore& store);

// Copies rank 0's running statistics to every rank: checkpoints and evaluations use those of rank
// 0. Collective.
void BroadcastStatistics(collectives::Communicator& communicator, const VariableStore& store);

// Returns false if a weight is infinite or NaN. A finite loss does not exclude that: a ReLU may
// turn NaN into 0.
bool WeightsAreFinite(const VariableStore& store);

// Checks that all ranks have the same weights, bit for bit. Collective.
// Throws CommError that names the ranks whose weights differ.
void VerifyWeights(collectives::Communicator& communicator, const VariableStore& store,
                   int64_t step);

}  // namespace carole::train
