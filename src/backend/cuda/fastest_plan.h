// The fastest of cuDNN's plans for a graph: timed once, then remembered (src/core/choice_cache.h).
// For conv2d.cpp, as cudnn-frontend's headers take long to compile.
#pragma once

#include <cuda_runtime.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/backend/cuda/device_memory.h"
#include "src/backend/cuda/recording.h"
#include "src/backend/cuda/status.h"
#include "src/core/choice_cache.h"
#include "src/core/error.h"

namespace carole::cuda {

inline constexpr int kPlansTimed = 8;  // in the library's order, of some 40
inline constexpr int kTimings = 3;     // of each, the shortest counts
// For a convolution, once there is a plan: those that the library compiles itself take long.
inline constexpr auto kMostTime = std::chrono::milliseconds(500);

// Runs plans on memory that holds zeros.
class PlanTimer {
 public:
  // Bytes of each tensor of the graph, by its uid.
  using TensorBytes = std::vector<std::pair<int64_t, size_t>>;

  PlanTimer(cudnn_frontend::graph::Graph& graph, const TensorBytes& tensors, const Device& device)
      : graph_(graph), device_(device) {
    for (const auto& [uid, bytes] : tensors) {
      memory_.push_back(AllocateDevice(bytes, device.stream));
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

  // Milliseconds, as it is run later: recorded. nullopt: the plan does not run, or not so, or there
  // is no memory to try it in.
  std::optional<float> Time(int64_t plan) {
    int64_t bytes = 0;
    if (graph_.get_workspace_size_plan_at_index(plan, bytes).is_bad()) return std::nullopt;
    try {
      const DeviceMemory workspace = AllocateDevice(static_cast<size_t>(bytes), device_.stream);
      const auto run = [&] {
        cudnn_frontend::error_t error =
            graph_.execute_plan_at_index(device_.cudnn, pointers_, workspace.get(), plan);
        if (error.is_bad()) throw DeviceError(error.get_message());
      };
      run();  // loads the kernel
      const std::unique_ptr<Recording> recording = RecordGraph(device_.stream, run);
      (void)TimeOnce(*recording);  // warms up
      float shortest = std::numeric_limits<float>::max();
      for (int i = 0; i < kTimings; ++i) shortest = std::min(shortest, TimeOnce(*recording));
      return shortest;
    } catch (const DeviceError&) {
      return std::nullopt;
    }
  }

 private:
  float TimeOnce(Recording& recording) {
    Check(cudaEventRecord(begin_, device_.stream), "cudaEventRecord");
    recording.Replay();
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
};

// Number of the plan with this name that the library builds here; -1: there is none.
inline int64_t BuildNamed(cudnn_frontend::graph::Graph& graph, const std::string& wanted) {
  std::string name;
  for (int64_t plan = 0; plan < graph.get_execution_plan_count(); ++plan) {
    if (graph.get_plan_name_at_index(plan, name).is_good() && name == wanted &&
        graph.build_plan_at_index(plan).is_good())
      return plan;
  }
  return -1;
}

// The fastest of the first plans that can be built; -1: none runs.
inline int64_t FindFastest(cudnn_frontend::graph::Graph& graph,
                           const PlanTimer::TensorBytes& tensors, const Device& device) {
  using Clock = std::chrono::steady_clock;
  PlanTimer timer(graph, tensors, device);
  int64_t fastest = -1;
  float shortest = std::numeric_limits<float>::max();
  int timed = 0;
  const Clock::time_point start = Clock::now();
  for (int64_t plan = 0; plan < graph.get_execution_plan_count() && timed < kPlansTimed; ++plan) {
    if (fastest >= 0 && Clock::now() - start > kMostTime) break;
    if (graph.build_plan_at_index(plan).is_bad()) continue;
    ++timed;
    const std::optional<float> milliseconds = timer.Time(plan);
    if (!milliseconds || *milliseconds >= shortest) continue;
    shortest = *milliseconds;
    fastest = plan;
  }
  return fastest;
}

// The first plan in the library's order that can be built.
inline cudnn_frontend::error_t BuildFirst(cudnn_frontend::graph::Graph& graph) {
  cudnn_frontend::error_t error;
  for (int64_t plan = 0; plan < graph.get_execution_plan_count(); ++plan) {
    error = graph.build_plan_at_index(plan);
    if (error.is_good()) break;
  }
  return error;
}

// After graph.check_support(). `task`: all that the plan's speed depends on beside the machine.
inline cudnn_frontend::error_t BuildFastest(cudnn_frontend::graph::Graph& graph,
                                            const std::string& task,
                                            const PlanTimer::TensorBytes& tensors,
                                            const Device& device) {
  if (device.plans == nullptr) return BuildFirst(graph);
  const std::optional<std::string> known = device.plans->Find(task);
  if (known && BuildNamed(graph, *known) >= 0) return {};
  int64_t fastest = -1;
  try {
    fastest = FindFastest(graph, tensors, device);
  } catch (const DeviceError&) {  // no memory for the tensors
  }
  if (fastest < 0) return BuildFirst(graph);
  std::string name;
  if (graph.get_plan_name_at_index(fastest, name).is_good()) device.plans->Add(task, name);
  return graph.build_plan_at_index(fastest);  // the one that runs from now on
}

}  // namespace carole::cuda
