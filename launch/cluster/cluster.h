// The one picture of a job that every way of starting it is turned into: which machines, how many
// ranks on each, and which part this process plays. Pure: nothing here looks at the machine.
//
// Ranks lie host by host, in the order of `hosts`, as mpirun --map-by slot places them; so every
// process computes the same map from the same text. Rank 0 is on the chief's host.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace carole::launch {

enum class Role {
  kChief,            // leads; TF_CONFIG also says "master"
  kWorker,           // trains
  kParameterServer,  // "ps": holds no weights here, so it has nothing to do
  kEvaluator         // evaluates checkpoints, apart from the ranks
};

// As TF_CONFIG writes it.
const char* RoleName(Role role);

// A process that the job's description names.
struct Task {
  Role role = Role::kWorker;
  int index = 0;     // among those of its role
  std::string host;  // "" when not said: an evaluator that only its own description names
  int port = 0;      // 0: not said
  int rank = -1;     // the first that it stands for; -1: none
};

// Whether the task's machine gets ranks for it.
bool Trains(const Task& task);

// A machine that holds ranks; it appears once, however many tasks it has.
struct Host {
  std::string name;
  // What mpirun and ssh call it: its name; t0, t1, … in a cluster with IPv6 literals, which Open
  // MPI refuses. It stays the machine's own when others are lost.
  std::string alias;
  int port = 0;  // of the first task with ranks: where the job may reach this machine; 0: not said
  int slots = 0;
  int first_rank = 0;
};

struct Cluster {
  std::vector<Host> hosts;
  std::vector<Task> tasks;  // chief, workers, parameter servers, evaluator
  std::optional<Task> me;   // nullopt: not said

  int size() const;  // ranks
};

// Joins the tasks' machines. With num_gpus > 0 each has that many slots, else one for each task
// that trains. The first task that is chief or worker leads; there has to be one. All names of the
// loopback mean one machine.
Cluster MakeCluster(std::vector<Task> tasks, int num_gpus);

// This machine alone.
Cluster MakeLocalCluster(int num_gpus);

// Throws ConfigError when this process, which is about to train and was started as one of
// `num_processes` == 1, belongs to a job of several ranks, since N such processes would each train
// for themselves; or is a parameter server or an evaluator, which do not train.
void RequireWholeJob(const Cluster& cluster, int num_processes);

}  // namespace carole::launch
