// The state of a rank in memory that outlives it. TrainStep and Trainer keep it up to date.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "src/backend/backend.h"
#include "src/train/survival/manifest.h"
#include "src/train/survival/shared_memory.h"
#include "src/train/survival/state_record.h"

namespace carole::train {

// One object for each rank, used by one thread. state_record.h explains the order of the calls.
// After TurnOff(), and if the backend has memory of its own, all calls do nothing.
class SurvivingState {
 public:
  // Throws ConfigError if the system refuses shared memory.
  SurvivingState();
  ~SurvivingState();
  SurvivingState(const SurvivingState&) = delete;
  SurvivingState& operator=(const SurvivingState&) = delete;

  bool is_on() const { return is_on_; }
  // Stops keeping the state. Logs the reason on rank 0.
  void TurnOff(std::string_view reason);

  // Sets a function that Describe() calls when the state is described.
  void SetOnDescribed(std::function<void()> on_described) {
    on_described_ = std::move(on_described);
  }

  // Returns zeroed memory for weights, statistics, slots and moving averages. If the system refuses
  // shared memory, this turns the object off and returns other memory.
  DeviceMemory Allocate(size_t bytes);

  // Describes the replica, all of whose arenas came from Allocate(), and marks it as a whole state
  // with this progress. See MakeManifest() for the arguments. If the replica cannot be described,
  // this turns the object off. From now on, a signal such as SIGSEGV marks the state as damaged.
  void Describe(const ReplicaView& replica, const std::byte* saved_statistics,
                std::span<const int> frozen, const RunFacts& facts, const RunState& progress);

  // Keeps a value of the attribute RunFacts::changing_attribute, which belongs to the progress in
  // this epoch. A text that is too long is not kept.
  void KeepText(std::string_view text, int64_t epoch);
  // Sets the progress that the run has if the step that begins now is applied.
  void Announce(const RunState& progress) { announced_ = progress; }
  // Says that the running statistics were copied, so forward may change them.
  void MarkStatisticsSaved();
  // Says that weights, slots, averages or statistics change from now until EndChange(). Returns
  // whether the state was whole before.
  bool BeginChange();
  // Both say that the arenas hold a whole state again. EndStep() gives it the announced progress if
  // the step was applied, else that of the step before.
  void EndChange(const ReplicaView& replica, const RunState& progress);
  void EndStep(const ReplicaView& replica, bool is_applied);
  // Says that weights and moving averages are exchanged, or that they are back. Call it between
  // BeginChange() and EndSwap(), which ends the change. `was_whole`: the result of BeginChange();
  // in local SGD, a state between two averages is not whole.
  void EndSwap(bool is_swapped, bool was_whole);

  const SharedMemory& memory() const { return memory_; }
  StateRecord& record() const { return *record_; }

 private:
  SharedMemory memory_;
  const std::shared_ptr<std::byte> record_memory_;
  StateRecord* const record_;
  std::function<void()> on_described_;
  RunState announced_;
  bool is_on_ = true;
};

}  // namespace carole::train
