// Where a run stands, to and from checkpoints, and the same on every rank.
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

// The numbers of one rank; not owned.
struct ReplicaView {
  VariableStore& store;
  optim::Optimizer& optimizer;
  optim::MovingAverages* averages = nullptr;  // null where none are kept
  LossScale* loss_scale = nullptr;            // null where there is none
};

// Ends the name of a variable's moving average in a checkpoint:
// "VARIABLE/ExponentialMovingAverage".
inline constexpr char kAverageSuffix[] = "/ExponentialMovingAverage";

// With a replica this is all that a run consists of.
struct RunState {
  int64_t step = 0;      // updates done
  int64_t epoch = 0;     // of the next batch
  int64_t position = 0;  // samples of that epoch that all ranks together have seen
  uint64_t seed = 0;
  io::SkippedRecords skipped{};  // of these samples
};

// Everything, in TensorFlow's names, shapes and element order. kLive: nothing is copied before it
// is written, so the replica must outlive the result and not change until then.
enum class SnapshotKind : uint8_t { kCopy, kLive };
io::Checkpoint MakeSnapshot(const ReplicaView& replica, const RunState& state,
                            const std::map<std::string, std::string>& attributes,
                            SnapshotKind kind = SnapshotKind::kCopy);

// Variables, slots and moving averages; these begin anew, with a word in the log, when the run has
// not kept any so far. `path` is for error texts. Throws DataError naming the variables that do not
// fit, also when a slot is missing, as after a change of optimizer; the replica may then be half
// overwritten.
RunState Restore(const io::Checkpoint& checkpoint, const std::string& path,
                 const ReplicaView& replica);

// Another program's latest checkpoint in `folder`, if there is one with a step: that run goes on,
// at the begin of an epoch, with this seed.
std::optional<io::LoadedCheckpoint> ReadLatestForeign(const std::string& folder, uint64_t seed,
                                                      const VariableStore& store);

// Rank 0's replica and state on every rank; checks that they arrived. Collective.
void BroadcastState(collectives::Communicator& communicator, const ReplicaView& replica,
                    RunState& state);

// Rank 0's weights and moving statistics on every rank. Collective.
void BroadcastVariables(collectives::Communicator& communicator, const VariableStore& store);

// Rank 0's moving statistics on every rank: they are the ones that count. Collective.
void BroadcastStatistics(collectives::Communicator& communicator, const VariableStore& store);

// False when a weight is infinite or no number. A loss can hide that: a ReLU may turn NaN into 0.
bool WeightsAreFinite(const VariableStore& store);

// Throws CommError naming the ranks whose weights differ. Collective.
void VerifyWeights(collectives::Communicator& communicator, const VariableStore& store,
                   int64_t step);

}  // namespace carole::train
