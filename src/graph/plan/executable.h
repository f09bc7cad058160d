// A plan with its memory, ready to run. All memory is in one arena, and nothing is allocated after
// Bind().
//
//   Fuse(graph, backend); Differentiate(graph); FuseGradients(graph, backend);
//   Executable step(Compile(graph, backend));
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
#include "src/graph/plan/plan.h"
#include "src/graph/variable_store.h"

namespace carole {

// The time of one kind of operation in one phase, summed over all runs since ResetTimes().
struct OpTime {
  OpKind kind;
  Phase phase;
  double milliseconds = 0;
  int64_t runs = 0;
};

// One run of one kernel, for traces and summaries.
struct KernelRecord {
  using Time = std::chrono::steady_clock::time_point;

  int step;  // position in Plan::AllSteps()
  OpKind kind;
  Phase phase;
  const std::string& name;  // scope of the node
  Time start, end;          // on the host; a GPU may run the kernel later
};

// Not thread-safe.
class Executable {
 public:
  // The graph and the backend of the plan must outlive this.
  explicit Executable(Plan plan);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Makes zeroed memory for the graph's variables, in the plan's layouts. For Bind().
  std::unique_ptr<VariableStore> MakeStore(
      const VariableStore::Allocate& allocate_gradients = {}) const;

  // Allocates the arena and gives every kernel its memory. Call it once. `store` must outlive this.
  void Bind(const VariableStore& store);

  // Host memory for an input of the graph, in plain layout (NHWC, row-major). It keeps its contents
  // between runs. Each run copies it to the device, overlapping with the run before
  // (InputBuffers). This call waits until the last copy has finished, so that the memory may be
  // changed.
  Tensor Input(const std::string& name) const;

  // Returns a copy of a value that was marked as output, in plain order (NHWC for rank 4). Waits
  // for the last run.
  std::vector<double> Output(ValueId value) const;
  // The device memory of an output, with its layout and type. OutputDownload copies it to the host
  // asynchronously (output_download.h).
  Tensor OutputMemory(ValueId value) const;

  // Called when a gradient becomes final, with its index in VariableStore::ready_order().
  using GradientReady = std::function<void(int ready_index)>;
  // Runs one step: UploadInputs(), then RunKernels().
  void Run(const RunContext& context, const GradientReady& gradient_ready = {});
  // Copies the inputs and the context to the device.
  void UploadInputs(const RunContext& context);
  // Runs all kernels. Backend::Capture() may capture this: replayed kernels take the context from
  // the device, where UploadInputs() has put it.
  void RunKernels(const RunContext& context, const GradientReady& gradient_ready = {});

  // Hands the 16-bit copies of trainable weights over to the caller. Kernels read these copies
  // instead of the weights. Until this call, each run makes them before everything else.
  // Afterwards, the code that changes weights must also update their copies, or call CastWeights(),
  // which makes all copies. The list is in ascending order of the weights' ranges. Call it after
  // Bind(), for training only.
  std::vector<WeightCopy> TakeWeightCopies();
  void CastWeights(const RunContext& context);

  // Adds a function that is called after each kernel, on the thread that calls Run().
  using KernelObserver = std::function<void(const KernelRecord& record)>;
  void AddObserver(KernelObserver observer) { observers_.push_back(std::move(observer)); }
  bool is_observed() const { return !observers_.empty(); }

  // Returns the arena's memory to the operating system until the next run, if it is host memory.
  // Inputs and outputs lose their values.
  void ReleaseMemory();

  const Backend& backend() const { return backend_; }
  const Plan& plan() const { return plan_; }
  // Times by phase and kind of operation, since ResetTimes().
  std::vector<OpTime> Times() const;
  double PhaseMilliseconds(Phase phase) const;  // summed since ResetTimes()
  // From now on, waits for each kernel, as with an observer. Otherwise, times of GPU kernels are
  // only the host's times to launch them.
  void SynchronizeAfterEachKernel() { synchronizes_ = true; }
  void ResetTimes();

  // Describes each kernel of the plan in one line: milliseconds, kind, name, shapes, layouts,
  // types.
  std::string Describe() const;

 private:
  // A step of the plan, with the time that it has taken since ResetTimes().
  struct TimedStep {
    const PlanStep* step;
    double milliseconds = 0;
    int64_t runs = 0;
  };

  // The memory of a representation, by its index.
  Tensor Locate(int representation) const;

  const Plan plan_;
  const Graph& graph_;
  const Backend& backend_;
  const VariableStore* store_ = nullptr;
  std::vector<TimedStep> steps_;  // of Plan::AllSteps()
  DeviceMemory arena_;
  std::unique_ptr<InputBuffers> inputs_;
  std::map<std::string, size_t> input_indices_;  // indices into inputs_, by name of the input
  bool copies_taken_ = false;  // whether the caller makes the copies of weights (weight_casts)
  std::vector<KernelObserver> observers_;
  bool synchronizes_ = false;
};

}  // namespace carole
