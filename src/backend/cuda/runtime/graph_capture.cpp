#include "src/backend/cuda/runtime/graph_capture.h"

#include "src/backend/cuda/runtime/status.h"

namespace carole::cuda {
namespace {

class CudaGraph : public CapturedWork {
 public:
  CudaGraph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    // Keeps the priority of the streams: reductions between ranks run before kernels in the graph,
    // too.
    const cudaError_t status =
        cudaGraphInstantiate(&graph_, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    Check(status, "cudaGraphInstantiate");
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override {
    cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(graph_);
  }

  void Replay() override { Check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

 private:
  const cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

// The capture mode is thread-local: threads that wait for a reduction query their events during the
// capture, which the global mode would refuse.
std::unique_ptr<CapturedWork> CaptureGraph(CUstream_st* stream,
                                           const std::function<void()>& enqueue) {
  cudaGraph_t graph = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // clears the error of the aborted capture
    throw;
  }
  Check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return std::make_unique<CudaGraph>(graph, stream);
}

}  // namespace carole::cuda
