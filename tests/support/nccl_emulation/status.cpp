#include "src/backend/cuda/status.h"

#include "src/core/error.h"

namespace carole::cuda {

void Check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw DeviceError(std::string(call) + ": " + std::to_string(status));
}

}  // namespace carole::cuda
