#include "src/backend/cuda/runtime/recording.h"

#include "src/backend/cuda/runtime/status.h"

namespace carole::cuda {
namespace {

class GraphRecording : public Recording {
 public:
  GraphRecording(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    // Sums between ranks go before kernels in a graph, too.
    const cudaError_t status =
        cudaGraphInstantiate(&graph_, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    Check(status, "cudaGraphInstantiate");
  }
  GraphRecording(const GraphRecording&) = delete;
  GraphRecording& operator=(const GraphRecording&) = delete;
  ~GraphRecording() override {
    cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(graph_);
  }

  void Replay() override { Check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

 private:
  const cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

// In this thread's mode, as those that wait for sums look at their events meanwhile.
std::unique_ptr<Recording> RecordGraph(CUstream_st* stream, const std::function<void()>& enqueue) {
  cudaGraph_t graph = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // of a capture that was broken off
    throw;
  }
  Check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return std::make_unique<GraphRecording>(graph, stream);
}

}  // namespace carole::cuda
