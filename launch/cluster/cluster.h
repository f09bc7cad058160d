// Cluster: the description of a job that every way of starting it is turned into. It says which
// hosts the job has, how many ranks each host gets, and which part this process plays. Nothing here
// looks at the machine.
//
// Ranks are numbered host by host in the order of `hosts`, as mpirun --map-by slot places them. So
// every process computes the same map from the same text. Rank 0 is on the host of the chief.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace carole::launch {

enum class Role {
  kChief,            // leads the job; TF_CONFIG also calls it "master"
  kWorker,           // trains
  kParameterServer,  // "ps"; carole keeps no weights there, so it has nothing to do
  kEvaluator         // evaluates checkpoints, outside of the training ranks
};

// Returns the name that TF_CONFIG uses: "chief", "worker", "ps" or "evaluator".
const char* RoleName(Role role);

// One process in the description of the job.
struct Task {
  Role role = Role::kWorker;
  int index = 0;     // number among the tasks of the same role
  std::string host;  // "": unknown, as for an evaluator that only its own TF_CONFIG names
  int port = 0;      // 0: unknown
  // Its rank; -1: none. With num_gpus > 0, the first task of a host has the first rank of that
  // host, and the host's other tasks have none.
  int rank = -1;
};

// Returns whether the task is a chief or a worker, so that its host gets ranks for it.
bool IsTrainingTask(const Task& task);

// A machine that holds ranks. It is listed once, no matter how many tasks it has.
struct Host {
  std::string name;
  // The name that mpirun and ssh use. It equals `name`, except in a cluster with IPv6 literals,
  // which Open MPI refuses: there the aliases are t0, t1, … A host keeps its alias when other hosts
  // are lost.
  std::string alias;
  int port = 0;   // of the host's first training task, where the chief can reach it; 0: unknown
  int slots = 0;  // number of ranks
  int first_rank = 0;
};

struct Cluster {
  std::vector<Host> hosts;
  std::vector<Task> tasks;  // chief, workers, parameter servers, evaluator
  std::optional<Task> me;   // the task of this process; nullopt: unknown

  int size() const;  // number of ranks of the job
};

// Groups the tasks by host. With num_gpus > 0 every host has this many slots, otherwise one slot
// for each training task. The first chief or worker in `tasks` leads; there must be one (checked
// with CAROLE_CHECK). All loopback names and addresses count as one host.
Cluster MakeCluster(std::vector<Task> tasks, int num_gpus);

// Returns the cluster that consists of this machine only.
Cluster MakeLocalCluster(int num_gpus);

// Checks that this process, which is about to train, does not train alone although it belongs to a
// larger job. `num_processes` is the number of ranks that MPI has started; larger numbers than 1
// always pass. Throws ConfigError if it is 1 and
//   - the cluster has several ranks: N such processes would do N independent trainings, or
//   - the task of this process is a parameter server or an evaluator, which do not train.
void RequireWholeJob(const Cluster& cluster, int num_processes);

}  // namespace carole::launch
