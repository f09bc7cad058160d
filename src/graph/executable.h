// A graph made ready to run on a backend: kernels chosen, layouts agreed, reorders put in where two
// kernels disagree, all memory planned in one arena. Nothing is allocated after Bind().
//
//   Fuse(graph, backend); Differentiate(graph); FuseGradients(graph, backend);
//   Executable step(graph, backend);
//   const auto store = step.MakeStore();
//   step.Bind(*store);
//   … fill step.Input("images"), step.Input("labels"), step.Input("weights") …
//   step.Run(context, [&](int ready) { reducer.MarkReady(ready); });
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/backend/update.h"
#include "src/graph/graph.h"
#include "src/graph/memory_plan.h"
#include "src/graph/schedule.h"
#include "src/graph/variable_store.h"

namespace carole {

struct ExecutableStatistics {
  int kernels = 0;
  int activation_reorders = 0;
  int weight_reorders = 0;  // of weights, and of their gradients
  size_t arena_bytes = 0;
  size_t peak_live_bytes = 0;  // the bound that no plan can beat
};

// Time of one kind of operation, summed over all runs since ResetTimes().
struct OpTime {
  OpKind kind;
  Phase phase;
  double milliseconds = 0;
  int64_t runs = 0;
};

// One run of one kernel, for traces and summaries.
struct KernelRecord {
  using Time = std::chrono::steady_clock::time_point;

  int step;  // of the plan
  OpKind kind;
  Phase phase;
  const std::string& name;  // scope of the node
  Time start, end;          // of the host: a device's kernels may run later
};

class Executable {
 public:
  // `graph` and `backend` must outlive this. `share`: take the layouts of this store's variables
  // (evaluation beside training); its Bind() must then get that store. `schedule`: the order of the
  // nodes (recompute.h); empty means that of the graph. Nothing is computed again that the graph
  // lists as output.
  Executable(const Graph& graph, const Backend& backend, const VariableStore* share = nullptr,
             const Schedule& schedule = {});
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Zeroed memory for the graph's variables, in the layouts that the kernels chose; for Bind().
  std::unique_ptr<VariableStore> MakeStore(
      const VariableStore::Allocate& allocate_gradients = {}) const;

  // Gives every kernel its memory. Call once.
  void Bind(const VariableStore& store);

  // Plain memory of the host (NHWC, row-major) for a graph input; kept between runs. Where the
  // backend is not on_host() each Run() copies it beside the one in progress, and this waits for
  // the copy of the last one.
  Tensor Input(const std::string& name) const;

  // A copy of a value marked as output, in plain order (NHWC for rank 4).
  std::vector<double> Output(ValueId value) const;
  // The same, of an fp32 value of the last run, waiting for nothing: Wait() gives its floats. For
  // backends that are not on_host(). `download`: made where it is null.
  void BeginOutput(ValueId value, std::unique_ptr<Download>& download) const;

  // The memory of the backend where it lies, and how.
  Tensor OutputMemory(ValueId value) const;

  // Called with the index into VariableStore::ready_order() of each gradient as it becomes final.
  using GradientReady = std::function<void(int ready_index)>;
  // Receive() and RunKernels().
  void Run(const RunContext& context, const GradientReady& gradient_ready = {});
  // Brings the inputs to where kernels read them.
  void Receive(const RunContext& context);
  // May be recorded by the backend: then kernels get what a device reads of the context from
  // Receive().
  void RunKernels(const RunContext& context, const GradientReady& gradient_ready = {});

  // By place, the copies of trainable weights in another type, which kernels read instead and each
  // run makes anew before all else. From now on it does not: whoever changes weights makes theirs,
  // or CastWeights() all. Call after Bind(), in training only.
  std::vector<WeightCopy> TakeWeightCopies();
  void CastWeights(const RunContext& context);

  // Gets each kernel from now on when it has run, on the thread of Run().
  using KernelObserver = std::function<void(const KernelRecord& record)>;
  void AddObserver(KernelObserver observer) { observers_.push_back(std::move(observer)); }
  bool is_observed() const { return !observers_.empty(); }

  // Gives memory of activations that is the host's back to the system until the next Run(); inputs
  // and outputs lose their values.
  void ReleaseMemory();

  const Backend& backend() const { return backend_; }
  const ExecutableStatistics& statistics() const { return statistics_; }
  // Of all that the places of MakeStore()'s variables and gradients follow from.
  uint64_t LayoutHash() const;
  // Of the nodes in the order in which their kernels run, those that run twice included.
  uint64_t ScheduleHash() const;
  // By phase and kind, since ResetTimes().
  std::vector<OpTime> Times() const;
  double PhaseMilliseconds(Phase phase) const;  // summed since ResetTimes()
  // From now on each kernel is waited for, as where somebody observes them: else the times of a
  // device's are only the host's to hand them over.
  void WaitForKernels() { waits_for_kernels_ = true; }
  void ResetTimes();

  // One line for each step of the plan: milliseconds, kernel, shapes, layouts and types.
  std::string Describe() const;

 private:
  struct Step;
  struct Representation;
  class Compiler;

  Tensor Locate(int representation) const;
  Layout LayoutOf(size_t variable) const;  // in the store

  const Graph& graph_;
  const Backend& backend_;
  const VariableStore* store_ = nullptr;
  std::vector<Step> steps_;
  std::vector<Representation> representations_;
  std::vector<MemoryBlock> blocks_;
  std::vector<int> primary_;  // representation of each value, or -1
  std::vector<Layout> variable_layouts_;
  std::vector<int> ready_order_;
  DeviceMemory arena_;
  // Of an input, where the arena is not the host's: the batch after the one that is computed.
  struct Ahead {
    DeviceMemory staging;  // the host's
    DeviceMemory landing;  // the device's
  };
  std::map<std::string, Ahead> ahead_;
  bool casts_weights_ = false;     // in the first step
  bool copies_are_taken_ = false;  // by an optimizer
  ExecutableStatistics statistics_;
  std::vector<KernelObserver> observers_;
  bool waits_for_kernels_ = false;
};

}  // namespace carole
