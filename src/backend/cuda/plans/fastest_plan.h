// The fastest of cuDNN's plans for a graph: timed once, then remembered
// (src/core/files/choice_cache.h). For conv2d.cpp, as cudnn-frontend's headers take long to
// compile.
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
#include "src/backend/cuda/runtime/recording.h"
#include "src/backend/cuda/runtime/status.h"
#include "src/core/error.h"
#include "src/core/files/choice_cache.h"

namespace carole::cuda {

inline constexpr int kTimings = 3;  // of a plan, the shortest counts
// Each of so many runs in a row that the host's launch of them hardly counts, but fewer, or one,
// where they would take longer than that.
inline constexpr int kMostRuns = 10;
inline constexpr float kMostMilliseconds = 2;
inline constexpr float kNotRecorded = 1e6F;

// By its uid in the graph.
struct CopiedTensor {
  int64_t tensor = 0;
  size_t bytes = 0;
};

// Runs plans on memory of its own.
class PlanTimer {
 public:
  // Bytes of each tensor of the graph, by its uid.
  using TensorBytes = std::vector<std::pair<int64_t, size_t>>;

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

  PlanTrial Try(int64_t plan) {
    int64_t bytes = 0;
    cudnn_frontend::error_t error = graph_.build_plan_at_index(plan);
    if (error.is_good()) error = graph_.get_workspace_size_plan_at_index(plan, bytes);
    if (error.is_bad()) {
      if (failure_.is_good()) failure_ = error;
      return {};
    }
    (void)graph_.get_plan_name_at_index(plan, ran_);
    return TryWith(bytes, [&](std::byte* workspace) {
      return graph_.execute_plan_at_index(device_.cudnn, pointers_, workspace, plan);
    });
  }
  // The one that is built, and then a copy of so much of a tensor, for a pass over it.
  PlanTrial TryBuilt(const CopiedTensor& copied) {
    int64_t bytes = 0;
    if (graph_.get_workspace_size(bytes).is_bad() || graph_.get_plan_name(ran_).is_bad()) return {};
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
  // Why plans failed: the last that was built, if there was one, else the first.
  const cudnn_frontend::error_t& failure() const { return failure_; }

 private:
  template <typename Execute>
  PlanTrial TryWith(int64_t workspace_bytes, const Execute& execute) {
    DeviceMemory workspace;
    try {
      workspace = AllocateDevice(static_cast<size_t>(workspace_bytes), device_.stream);
    } catch (const DeviceError&) {
      RequireSound();
      return {.lacks_memory = true};
    }
    try {
      return {.milliseconds = Time([&] {
                cudnn_frontend::error_t error = execute(workspace.get());
                if (error.is_bad()) throw DeviceError(error.get_message());
              })};
    } catch (const DeviceError& e) {
      RequireSound();
      failure_ = {cudnn_frontend::error_code_t::GRAPH_EXECUTION_FAILED, e.what()};
      return {};
    }
  }

  // A kernel that went astray leaves nothing of the GPU to try other plans on.
  void RequireSound() const {
    const cudaError_t error = cudaStreamSynchronize(device_.stream);
    if (error == cudaSuccess) return;
    throw DeviceError(fmt::format(
        "[cuda] cuDNN's plan {}: the GPU fails behind it: {}; try another cuDNN, or --noautotune",
        ran_, cudaGetErrorString(error)));
  }

  // Zeros would let a GPU run faster than it does on data. The numbers' signs are random, their
  // sizes 1 to 2 in fp16, 2^-7 to 2 in bf16 and fp32.
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

  // Milliseconds of a run as it is later: recorded. Many more of a plan that only runs otherwise,
  // which is for tasks that have no other. Throws DeviceError if it does not run.
  template <typename Run>
  float Time(const Run& run) {
    run();  // loads the kernel
    const float once = TimeOnce(run);
    const int runs =
        static_cast<int>(std::clamp(kMostMilliseconds / once, 1.0F, static_cast<float>(kMostRuns)));
    std::unique_ptr<Recording> recording;
    try {
      recording = RecordGraph(device_.stream, [&] {
        for (int i = 0; i < runs; ++i) run();
      });
    } catch (const DeviceError&) {
      return once + kNotRecorded;
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
  std::string ran_;  // the name of the last plan that did, or tried to
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
// Bad: there is no plan that runs.
inline cudnn_frontend::error_t BuildFastest(cudnn_frontend::graph::Graph& graph,
                                            const std::string& task,
                                            const PlanTimer::TensorBytes& tensors,
                                            const Device& device) {
  if (device.plans == nullptr) return BuildFirst(graph);
  const std::optional<std::string> known = device.plans->Find(task);
  if (known && BuildNamed(graph, *known) >= 0) return {};
  std::optional<PlanTimer> timer;
  try {
    timer.emplace(graph, tensors, device);
  } catch (const DeviceError&) {
    if (cudaStreamSynchronize(device.stream) != cudaSuccess) throw;
    return BuildFirst(graph);  // there is no memory for the tensors
  }
  const PlanSearch found = FindFastest(
      graph.get_execution_plan_count(), [&](int64_t plan) { return timer->Try(plan); },
      std::chrono::steady_clock::now);
  const int64_t chosen = found.fastest >= 0 ? found.fastest : found.untried;
  if (chosen < 0) return timer->failure();
  std::string name;
  if (found.is_enough && graph.get_plan_name_at_index(chosen, name).is_good())
    device.plans->Add(task, name);
  return graph.build_plan_at_index(chosen);  // the one that runs from now on
}

// A graph whose plan is built, its tensors, and what a pass would go over behind it.
struct BuiltGraph {
  cudnn_frontend::graph::Graph& graph;
  PlanTimer::TensorBytes tensors;
  CopiedTensor copied = {};

  // Nothing where there is no memory to try it in.
  std::optional<float> Milliseconds(const Device& device) const {
    try {
      return PlanTimer(graph, tensors, device).TryBuilt(copied).milliseconds;
    } catch (const DeviceError&) {
      if (cudaStreamSynchronize(device.stream) != cudaSuccess) throw;
      return std::nullopt;
    }
  }
};

// Whether `one` is faster than the other by more than `milliseconds`. Nothing where that cannot be
// told.
inline std::optional<bool> IsFaster(const BuiltGraph& one, const BuiltGraph& other,
                                    float milliseconds, const Device& device) {
  const std::optional<float> its = one.Milliseconds(device), others = other.Milliseconds(device);
  if (!its || !others) return std::nullopt;
  return *its + milliseconds < *others;
}

}  // namespace carole::cuda
