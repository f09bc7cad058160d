// This process as one rank of a job: its communicator, its share of the cores, its kernels; and how
// it ends when something goes wrong.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "collectives/communicator.h"
#include "src/backend/backend.h"
#include "src/commands/flags/flags.h"
#include "src/core/error.h"

namespace carole::commands {

class Job {
 public:
  // Alone, without starting MPI, unless mpirun or srun started this process. Throws ConfigError,
  // CommError.
  explicit Job(const MachineFlags& flags);

  collectives::Communicator& communicator() const { return *communicator_; }
  const Backend& backend() const { return *backend_; }
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  int cores() const { return cores_; }                // that this rank may keep busy
  int hyperthreads() const { return hyperthreads_; }  // of these cores
  bool is_chief() const { return rank() == 0; }       // the rank that prints and writes
  // For ranks that compute on GPUs: what they hold is summed by NCCL from now on. Collective.
  // Throws ConfigError, CommError.
  void ConnectDevices() const;

 private:
  // What one rank cannot have, no rank has. Collective.
  void MakeBackendOnAllRanks(const MachineFlags& flags, int threads, Precision precision);

  int cores_ = 1, hyperthreads_ = 1;
  double collective_timeout_;  // seconds
  std::string wire_dtype_;
  std::unique_ptr<Backend> backend_;  // its stream outlives the communicator
  std::unique_ptr<collectives::Communicator> communicator_;
};

// Deletes what has memory of a device, but not while an error passes: the device may wait for a
// rank that is gone, and the end of its memory for the device. The process's own end comes first.
struct DeleteUnlessFailing {
  bool on_host = true;
  template <typename T>
  void operator()(T* object) const {
    if (on_host || std::uncaught_exceptions() == 0) delete object;
  }
};
template <typename T>
using DeviceOwned = std::unique_ptr<T, DeleteUnlessFailing>;
template <typename T, typename... Arguments>
DeviceOwned<T> MakeDeviceOwned(const Job& job, Arguments&&... arguments) {
  return {new T(std::forward<Arguments>(arguments)...), {job.backend().on_host()}};
}

// Runs `body` as a rank and returns what it returns. An error of one rank is reported and ends the
// whole job.
int RunJob(const MachineFlags& flags, const std::function<int(Job&)>& body);

// Logs the error; returns its exit code.
int LogFailure(const std::exception_ptr& error);

// The same, and says the code in words on the last line of standard error.
int ReportError(const std::exception_ptr& error);
// A plain 0 goes without saying.
void ReportExit(int code);
// What the program's code, whatever number the user wants for it, means.
void ReportExitAs(ExitCode meaning);

}  // namespace carole::commands
