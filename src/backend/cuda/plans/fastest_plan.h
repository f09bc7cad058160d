// Builds the fastest of cuDNN's execution plans for a graph. Included by conv2d.cpp only, because
// the headers of cudnn-frontend take long to compile.
//
// Why a search is needed. For one convolution cuDNN offers about 40 execution plans, in an order
// that comes from a heuristic and not from a measurement. So we time plans on the real GPU.
//
// Three things make this harder than running each plan once:
//   * Timing takes long. The limit of 0.5 s for each convolution allows ResNet-50 38 s and
//     Inception v3 67 s. On an H200 their first measurement took 9 s and 14 s in all.
//     So the name of the fastest plan is kept in a file (src/core/files/tuning_cache.h), under a
//     key that describes everything that speed depends on. The next run reads the name there.
//   * The library that is installed now may not know a cached name, or may fail to build that plan.
//     Then the search runs again.
//   * A plan may fail to build, fail to run, lack memory, or break the GPU.
//
// The phases of BuildFastest():
//   1. Without a cache (autotune is off): build the first plan that builds (BuildFirst).
//   2. With a known name: build that plan (BuildNamed).
//   3. Otherwise allocate one buffer for each tensor of the graph and fill it with random numbers
//      (PlanTimer). Zeros would let a GPU run faster than it does on real data.
//   4. Try plans in the library's order within a time limit (FindFastest in plan_search.h).
//   5. Store the name of the fastest plan, unless a plan could not be tried for lack of memory.
//      If no plan ran, choose the first one that lacked memory.
//   6. Build the chosen plan again: the plan that was built last is the one that the graph runs.
//
// How a plan is timed (PlanTimer::Time). A training step is replayed as a CUDA graph, so plans are
// timed in the same form. A plan first runs once to load its kernel, then once to estimate its time
// t. Then n runs are captured as one graph, and the graph is replayed kTimings times. The shortest
// replay counts, divided by n. n is kMaxMilliseconds / t, at least 1 and at most kMaxRuns: a short
// plan runs often enough that the launch by the host hardly counts.
//
// A worked example with kTimings = 3, kMaxRuns = 10, kMaxMilliseconds = 2:
//   plan 0    does not build                                        -> no time
//   plan 1    t = 0.05 ms, n = 10, replays of 0.51, 0.48, 0.49 ms   -> 0.048 ms
//   plan 2    t = 0.9 ms,  n = 2,  replays of 1.7, 1.6, 1.6 ms      -> 0.8 ms
//   plan 3    t = 0.03 ms, but cannot be captured                   -> about 1,000,000 ms
// Plan 1 wins. kNotCapturedPenalty ranks plan 3 after all plans that can be captured, so it would
// win only if there were none.
//
// A plan can fail in three ways (PlanTimer::TryWith):
//   * It needs more workspace than there is: it counts as untried, and the result is not cached.
//   * It does not build or run: the next plan is tried. The first build error is kept for the
//     message; an error at run time replaces it.
//   * It breaks the GPU (a sticky error): nothing can run on this GPU any more, so
//     RequireHealthyGpu() throws DeviceError, which names the plan.
#pragma once

#include <cuda_runtime.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/backend/cuda/plans/plan_search.h"
#include "src/backend/cuda/runtime/device_memory.h"
#include "src/backend/cuda/runtime/graph_capture.h"
#include "src/backend/cuda/runtime/status.h"
#include "src/core/error.h"
#include "src/core/files/tuning_cache.h"

namespace carole::cuda {

inline constexpr int kTimings = 3;                  // replays of each plan; the shortest counts
inline constexpr int kMaxRuns = 10;                 // runs of the plan in one replay, at most
inline constexpr float kMaxMilliseconds = 2;        // intended length of one replay, at most
inline constexpr float kNotCapturedPenalty = 1e6F;  // milliseconds

// A tensor of the graph whose first `bytes` bytes are copied after the plan.
struct CopiedTensor {
  int64_t tensor = 0;  // its uid in the graph
  size_t bytes = 0;
};

// Times plans of a graph on device memory of its own.
class PlanTimer {
 public:
  // The uid and the size in bytes of each tensor of the graph.
  using TensorBytes = std::vector<std::pair<int64_t, size_t>>;

  // `graph` and `device` must outlive the timer. Throws DeviceError if there is too little memory.
  PlanTimer(cudnn_frontend::graph::Graph& graph, const TensorBytes& tensors, const Device& device)
      : graph_(graph), device_(device) {
    for (const auto& [uid, bytes] : tensors) {
      memory_.push_back(AllocateDevice(bytes, device.stream));
      Fill(memory_.back().get(), bytes);
      pointers_[uid] = memory_.back().get();
    }
    Check(cudaEventCreate(&begin_), "cudaEventCreate");
    Check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  PlanTimer(const PlanTimer&) = delete;
  PlanTimer& operator=(const PlanTimer&) = delete;
  ~PlanTimer() {
    cudaStreamSynchronize(device_.stream);
    cudaEventDestroy(end_);
    cudaEventDestroy(begin_);
  }

  // Builds a plan and times it. Throws DeviceError if the plan broke the GPU.
  PlanTrial Try(int64_t plan) {
    int64_t bytes = 0;
    cudnn_frontend::error_t error = graph_.build_plan_at_index(plan);
    if (error.is_good()) error = graph_.get_workspace_size_plan_at_index(plan, bytes);
    if (error.is_bad()) {
      if (failure_.is_good()) failure_ = error;
      return {};
    }
    (void)graph_.get_plan_name_at_index(plan, plan_name_);
    return TryWith(bytes, [&](std::byte* workspace) {
      return graph_.execute_plan_at_index(device_.cudnn, pointers_, workspace, plan);
    });
  }
  // Times the graph's current plan together with a copy of `copied`. The copy stands for a kernel
  // of ours that reads and writes that tensor once more.
  PlanTrial TryBuilt(const CopiedTensor& copied) {
    int64_t bytes = 0;
    if (graph_.get_workspace_size(bytes).is_bad() || graph_.get_plan_name(plan_name_).is_bad())
      return {};
    const DeviceMemory copy = AllocateDevice(copied.bytes, device_.stream);
    return TryWith(bytes, [&](std::byte* workspace) {
      const cudnn_frontend::error_t error = graph_.execute(device_.cudnn, pointers_, workspace);
      if (copied.bytes > 0) {
        Check(cudaMemcpyAsync(copy.get(), pointers_.at(copied.tensor), copied.bytes,
                              cudaMemcpyDeviceToDevice, device_.stream),
              "cudaMemcpyAsync");
      }
      return error;
    });
  }
  // Returns why plans failed: the last error of a plan that was built, else the first build error.
  const cudnn_frontend::error_t& failure() const { return failure_; }

 private:
  template <typename Execute>
  PlanTrial TryWith(int64_t workspace_bytes, const Execute& execute) {
    DeviceMemory workspace;
    try {
      workspace = AllocateDevice(static_cast<size_t>(workspace_bytes), device_.stream);
    } catch (const DeviceError&) {
      RequireHealthyGpu();
      return {.lacks_memory = true};
    }
    try {
      return {.milliseconds = Time([&] {
                cudnn_frontend::error_t error = execute(workspace.get());
                if (error.is_bad()) throw DeviceError(error.get_message());
              })};
    } catch (const DeviceError& e) {
      RequireHealthyGpu();
      failure_ = {cudnn_frontend::error_code_t::GRAPH_EXECUTION_FAILED, e.what()};
      return {};
    }
  }

  // Throws DeviceError if the GPU reports a sticky error, for example after a kernel that wrote
  // outside of its memory: no other plan can be tried on this GPU then.
  void RequireHealthyGpu() const {
    const cudaError_t error = cudaStreamSynchronize(device_.stream);
    if (error == cudaSuccess) return;
    throw DeviceError(fmt::format(
        "[cuda] cuDNN plan {}: the GPU failed while this plan was timed: {}; try another version "
        "of cuDNN, or {}",
        plan_name_, cudaGetErrorString(error), Option("autotune", "false")));
  }

  // Fills memory with random numbers: zeros would let a GPU run faster than it does on real data.
  // Their signs are random. Their magnitudes are 1 to 2 in fp16, and 2^-7 to 2 in bf16 and fp32.
  void Fill(std::byte* memory, size_t bytes) {
    std::vector<uint32_t> numbers(1 << 16);
    std::mt19937 random;
    for (uint32_t& two : numbers) two = static_cast<uint32_t>((random() & 0x83FF83FF) | 0x3C003C00);
    size_t done = std::min(bytes, numbers.size() * sizeof numbers[0]);
    Check(cudaMemcpyAsync(memory, numbers.data(), done, cudaMemcpyHostToDevice, device_.stream),
          "cudaMemcpyAsync");
    Check(cudaStreamSynchronize(device_.stream), "cudaStreamSynchronize");
    while (done < bytes) {
      const size_t more = std::min(done, bytes - done);
      Check(cudaMemcpyAsync(memory + done, memory, more, cudaMemcpyDeviceToDevice, device_.stream),
            "cudaMemcpyAsync");
      done += more;
    }
  }

  // Returns the milliseconds of one run of a plan inside a captured graph, which is how a training
  // step runs it. Adds kNotCapturedPenalty if the plan cannot be captured. Throws DeviceError if
  // the plan does not run.
  template <typename Run>
  float Time(const Run& run) {
    run();  // loads the kernel
    const float once = TimeOnce(run);
    const int runs =
        static_cast<int>(std::clamp(kMaxMilliseconds / once, 1.0F, static_cast<float>(kMaxRuns)));
    std::unique_ptr<CapturedWork> recording;
    try {
      recording = CaptureGraph(device_.stream, [&] {
        for (int i = 0; i < runs; ++i) run();
      });
    } catch (const DeviceError&) {
      return once + kNotCapturedPenalty;
    }
    float shortest = std::numeric_limits<float>::max();
    for (int i = 0; i < kTimings; ++i)
      shortest = std::min(shortest, TimeOnce([&] { recording->Replay(); }));
    return shortest / static_cast<float>(runs);
  }

  template <typename Enqueue>
  float TimeOnce(const Enqueue& enqueue) {
    Check(cudaEventRecord(begin_, device_.stream), "cudaEventRecord");
    enqueue();
    Check(cudaEventRecord(end_, device_.stream), "cudaEventRecord");
    Check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return milliseconds;
  }

  cudnn_frontend::graph::Graph& graph_;
  const Device& device_;
  std::vector<DeviceMemory> memory_;
  std::unordered_map<int64_t, void*> pointers_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudnn_frontend::error_t failure_;
  std::string plan_name_;  // the last plan that ran or was about to run
};

// Builds the plan with this name and returns its number, or -1 if there is none that builds.
inline int64_t BuildNamed(cudnn_frontend::graph::Graph& graph, const std::string& wanted) {
  std::string name;
  for (int64_t plan = 0; plan < graph.get_execution_plan_count(); ++plan) {
    if (graph.get_plan_name_at_index(plan, name).is_good() && name == wanted &&
        graph.build_plan_at_index(plan).is_good())
      return plan;
  }
  return -1;
}

// Builds the first plan, in the library's order, that can be built. Returns the last error if none
// can.
inline cudnn_frontend::error_t BuildFirst(cudnn_frontend::graph::Graph& graph) {
  cudnn_frontend::error_t error;
  for (int64_t plan = 0; plan < graph.get_execution_plan_count(); ++plan) {
    error = graph.build_plan_at_index(plan);
    if (error.is_good()) break;
  }
  return error;
}

// Builds the fastest plan of a graph, as the head of this file explains. Call graph.check_support()
// before.
//   task       the key of the cache: everything except the machine that the plan's speed depends on
//   tensors    the sizes of all tensors of the graph
// Returns an error if there is no plan that runs. Throws DeviceError if a plan broke the GPU.
inline cudnn_frontend::error_t BuildFastest(cudnn_frontend::graph::Graph& graph,
                                            const std::string& task,
                                            const PlanTimer::TensorBytes& tensors,
                                            const Device& device) {
  if (device.plan_cache == nullptr) return BuildFirst(graph);
  const std::optional<std::string> known = device.plan_cache->Find(task);
  if (known && BuildNamed(graph, *known) >= 0) return {};
  std::optional<PlanTimer> timer;
  try {
    timer.emplace(graph, tensors, device);
  } catch (const DeviceError&) {
    if (cudaStreamSynchronize(device.stream) != cudaSuccess) throw;
    return BuildFirst(graph);  // there is too little memory for the tensors
  }
  const PlanSearch found = FindFastest(
      graph.get_execution_plan_count(), [&](int64_t plan) { return timer->Try(plan); },
      std::chrono::steady_clock::now);
  const int64_t chosen = found.fastest >= 0 ? found.fastest : found.untried;
  if (chosen < 0) return timer->failure();
  std::string name;
  if (found.is_conclusive && graph.get_plan_name_at_index(chosen, name).is_good())
    device.plan_cache->Add(task, name);
  return graph.build_plan_at_index(chosen);  // graph.execute() runs this plan from now on
}

// A graph whose plan is built, with the sizes of its tensors. `copied` is the tensor that a
// separate kernel would read and write after the plan, if there is one.
struct BuiltGraph {
  cudnn_frontend::graph::Graph& graph;
  PlanTimer::TensorBytes tensors;
  CopiedTensor copied = {};

  // Times the graph. Returns nothing if there is too little memory to time it.
  std::optional<float> Milliseconds(const Device& device) const {
    try {
      return PlanTimer(graph, tensors, device).TryBuilt(copied).milliseconds;
    } catch (const DeviceError&) {
      if (cudaStreamSynchronize(device.stream) != cudaSuccess) throw;
      return std::nullopt;
    }
  }
};

// Whether `one` is faster than `other` by more than `milliseconds`. Returns nothing if one of them
// could not be timed.
inline std::optional<bool> IsFaster(const BuiltGraph& one, const BuiltGraph& other,
                                    float milliseconds, const Device& device) {
  const std::optional<float> its = one.Milliseconds(device), others = other.Milliseconds(device);
  if (!its || !others) return std::nullopt;
  return *its + milliseconds < *others;
}

}  // namespace carole::cuda
