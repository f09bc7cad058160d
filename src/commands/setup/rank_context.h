// This process as one rank of a job: its communicator, its share of the cores, and its backend.
// Also how the process ends and reports its end.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "collectives/full_communicator.h"
#include "collectives/nccl/loader.h"
#include "src/backend/backend.h"
#include "src/commands/flags/flags.h"
#include "src/core/error.h"

namespace carole::commands {

class RankContext {
 public:
  // Connects the ranks. Without mpirun or srun this is a job of one rank, and MPI is not started.
  // Collective. Throws ConfigError if the environment makes no sense, CommError if ranks cannot
  // connect.
  explicit RankContext(const MachineConfig& flags);
  // Makes the backend with this rank's share of the cores. Call it once, before anything below that
  // is about backend or cores. Collective. Throws ConfigError if the flags make no sense or a rank
  // lacks its device.
  void StartBackend(const MachineConfig& flags);

  collectives::FullCommunicator& communicator() const { return *communicator_; }
  collectives::Diagnostics& diagnostics() const { return *communicator_; }
  const Backend& backend() const { return *backend_; }
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  int cores() const { return cores_; }                // cores that this rank may keep busy
  int hyperthreads() const { return hyperthreads_; }  // hyperthreads of these cores
  bool is_chief() const { return rank() == 0; }       // whether this rank prints and writes files
  // Sets what this rank does if it fails: `at_once` is called first, `before_end` when the failure
  // is logged, before the job is aborted. Both may be empty.
  struct FailureHooks {
    std::function<void(const std::exception& error)> at_once;
    std::function<void()> before_end;
  };
  void SetFailureHooks(FailureHooks hooks) { failure_hooks_ = std::move(hooks); }
  const FailureHooks& failure_hooks() const { return failure_hooks_; }
  // Connects the GPUs of the ranks, if they compute on GPUs: reductions of device memory use NCCL
  // from now on. The deadline is that of collectives. Collective. Throws ConfigError, CommError.
  void ConnectDevices(collectives::NcclOptions options = {}) const;
  // Chooses the type in which gradients travel if that was left to the program, by a measurement
  // (collectives/wire_choice.h). GPUs must have been connected before. Collective. Throws
  // CommError.
  void ChooseWireDtype() const;
  // Returns the bytes that every rank can have: the minimum over ranks of the rank's share of its
  // host's memory. For kBackend on a device whose free bytes are known, it is the device's memory
  // instead. Ranks on one host share its memory. Returns 0 if a host's memory is not known.
  // Collective.
  enum class Memory : uint8_t { kBackend, kHost };
  int64_t MinMemoryShare(Memory memory) const;

 private:
  // Makes the backend, on this GPU if there is one.
  void MakeBackendOf(const MachineConfig& flags, int threads, std::optional<int> gpu);
  // Throws on all ranks if one has a problem: that rank throws its problem, the others
  // FollowingError. Collective.
  void FailOnAllRanks(const std::exception_ptr& problem);

  int cores_ = 1, hyperthreads_ = 1;
  double collective_timeout_;  // seconds
  bool chooses_wire_dtype_;
  FailureHooks failure_hooks_;
  std::unique_ptr<Backend> backend_;  // its stream must outlive the communicator
  std::unique_ptr<collectives::FullCommunicator> communicator_;
};

// Deletes an object, unless it `is_shared` and an exception propagates. In that case a device may
// be waiting for a rank that is gone, and freeing memory would wait for the device. Or a collective
// that has begun still writes to the memory. The process ends soon after and frees it.
struct DeleteUnlessFailing {
  bool is_shared = false;
  template <typename T>
  void operator()(T* object) const {
    if (!is_shared || std::uncaught_exceptions() == 0) delete object;
  }
};
template <typename T>
using OwnedUnlessFailing = std::unique_ptr<T, DeleteUnlessFailing>;
template <typename T, typename... Arguments>
OwnedUnlessFailing<T> MakeOwnedUnlessFailing(const RankContext& context, Arguments&&... arguments) {
  return {new T(std::forward<Arguments>(arguments)...),
          {context.backend().has_own_memory() || context.size() > 1}};
}

// Runs `body` as one rank of a job and returns its result. If a rank throws, the error is reported
// and the whole job is aborted. If all ranks throw at the same time, usually only one reports it.
int RunAsRank(const MachineConfig& flags, const std::function<int(RankContext&)>& body);

// Logs the error and returns its exit code.
int LogFailure(const std::exception_ptr& error);

// Logs the error, prints the exit code and its meaning as the last line on standard error, and
// returns the exit code.
int ReportError(const std::exception_ptr& error);
// Prints the exit code and its meaning as the last line on standard error. Prints nothing for 0,
// unless SetExitMeaning() was called.
void ReportExit(int code);
// Sets the meaning that ReportExit() prints, for exit codes whose number the user can choose.
void SetExitMeaning(ExitCode meaning);

}  // namespace carole::commands
