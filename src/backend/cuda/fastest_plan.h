// The fastest of cuDNN's plans for a graph: timed once, then remembered (src/core/choice_cache.h).
// For conv2d.cpp, as cudnn-frontend's headers take long to compile.
#pragma once

#include <cuda_runtime.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/backend/cuda/device_memory.h"
#include "src/backend/cuda/status.h"
#include "src/core/choice_cache.h"
#include "src/core/error.h"

namespace carole::cuda {

inline constexpr int kPlansTimed = 4;  // in the library's order; all would take minutes for a net
inline constexpr int kTimings = 3;     // of each, the shortest counts
inline constexpr int64_t kMostScratchBytes = int64_t{1} << 30;

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

  // Milliseconds; nullopt: the plan does not run, or not in little memory.
  std::optional<float> Time(int64_t plan) {
    int64_t bytes = 0;
    if (graph_.get_workspace_size_plan_at_index(plan, bytes).is_bad() || bytes > kMostScratchBytes)
      return std::nullopt;
    const DeviceMemory workspace = AllocateDevice(static_cast<size_t>(bytes), device_.stream);
    float shortest = std::numeric_limits<float>::max();
    for (int i = 0; i <= kTimings; ++i) {  // the first one warms up
      Check(cudaEventRecord(begin_, device_.stream), "cudaEventRecord");
      if (graph_.execute_plan_at_index(device_.cudnn, pointers_, workspace.get(), plan).is_bad())
        return std::nullopt;
      Check(cudaEventRecord(end_, device_.stream), "cudaEventRecord");
      Check(cudaEventSynchronize(end_), "cudaEventSynchronize");
      float milliseconds = 0;
      Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
      if (i > 0) shortest = std::min(shortest, milliseconds);
    }
    return shortest;
  }

 private:
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
  PlanTimer timer(graph, tensors, device);
  int64_t fastest = -1;
  float shortest = std::numeric_limits<float>::max();
  int timed = 0;
  for (int64_t plan = 0; plan < graph.get_execution_plan_count() && timed < kPlansTimed; ++plan) {
    if (graph.build_plan_at_index(plan).is_bad()) continue;
    ++timed;
    const std::optional<float> milliseconds = timer.Time(plan);
    if (!milliseconds || *milliseconds >= shortest) continue;
    shortest = *milliseconds;
    fastest = plan;
  }
  return fastest;
}

// After graph.check_support(). `task`: all that the plan's speed depends on beside the machine.
inline cudnn_frontend::error_t BuildFastest(cudnn_frontend::graph::Graph& graph,
                                            const std::string& task,
                                            const PlanTimer::TensorBytes& tensors,
                                            const Device& device) {
  using cudnn_frontend::BuildPlanPolicy_t;
  if (device.plans == nullptr) return graph.build_plans(BuildPlanPolicy_t::HEURISTICS_CHOICE);
  const std::optional<std::string> known = device.plans->Find(task);
  if (known && BuildNamed(graph, *known) >= 0) return {};
  int64_t fastest = -1;
  try {
    fastest = FindFastest(graph, tensors, device);
  } catch (const DeviceError&) {  // no memory to try them in
  }
  if (fastest < 0) return graph.build_plans(BuildPlanPolicy_t::HEURISTICS_CHOICE);
  std::string name;
  if (graph.get_plan_name_at_index(fastest, name).is_good()) device.plans->Add(task, name);
  return graph.build_plan_at_index(fastest);  // the one that runs from now on
}

}  // namespace carole::cuda
