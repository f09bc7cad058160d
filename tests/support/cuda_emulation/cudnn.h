// Replaces cuDNN's header of this name; see cudnn_frontend.h in this folder.
#pragma once

#include <cuda_runtime.h>

enum cudnnStatus_t { CUDNN_STATUS_SUCCESS = 0 };
struct cudnnContext {
  cudaStream_t stream = nullptr;
};
using cudnnHandle_t = cudnnContext*;

inline size_t cudnnGetVersion() { return 91900; }
inline cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
