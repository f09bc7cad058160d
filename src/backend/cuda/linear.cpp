// Fully connected layers by cuBLASLt: x (N,C), w stored (C,K), y (N,K). The library counts columns
// first, so it sees each matrix transposed: y^T (K,N) = w^T (K,C) x^T (C,N).
#include <cublasLt.h>
#include <cuda_runtime.h>

#include "src/backend/cuda/bias.h"
#include "src/backend/cuda/cuda.h"
#include "src/core/check.h"

namespace carole::cuda {
namespace {

void Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(fmt::format("[cublas] {}: {}", call, cublasLtGetStatusString(status)));
}

// A matrix of fp32, columns one after the other.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns) {
    Check(cublasLtMatrixLayoutCreate(&layout_, CUDA_R_32F, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
  }
  ~Matrix() { cublasLtMatrixLayoutDestroy(layout_); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// How a product is made; with an epilogue after it.
class Operation {
 public:
  Operation(bool tf32, bool transpose_a, bool transpose_b) {
    Check(cublasLtMatmulDescCreate(
              &descriptor_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    Set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  }
  ~Operation() { cublasLtMatmulDescDestroy(descriptor_); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    Check(cublasLtMatmulDescSetAttribute(descriptor_, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  cublasLtMatmulDesc_t get() const { return descriptor_; }

 private:
  cublasLtMatmulDesc_t descriptor_ = nullptr;
};

// The algorithm that the library thinks fastest within the workspace.
cublasLtMatmulAlgo_t Choose(const Device& device, const Operation& operation, const Matrix& a,
                            const Matrix& b, const Matrix& result, size_t workspace_bytes) {
  cublasLtMatmulPreference_t preference = nullptr;
  Check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                       &workspace_bytes, sizeof workspace_bytes);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(device.blas, operation.get(), a.get(), b.get(), result.get(),
                                     result.get(), preference, 1, &found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  Check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0) throw DeviceError("[cublas] the library has no algorithm for this product");
  return found.algo;
}

// result (m,n) = op(a) op(b), all counted columns first.
class Product : public CudaKernel {
 public:
  Product(const OpSpec& spec, const Device& device, bool transpose_a, bool transpose_b, int64_t m,
          int64_t n, int64_t inner)
      : CudaKernel(spec, device),
        operation_(device.tf32, transpose_a, transpose_b),
        a_(transpose_a ? inner : m, transpose_a ? m : inner),
        b_(transpose_b ? n : inner, transpose_b ? inner : n),
        result_(m, n) {
    workspace_bytes_ = kWorkspaceBytes;
  }

 protected:
  void Multiply(const float* a, const float* b, float* result) {
    if (!chosen_) algorithm_ = Choose(device_, operation_, a_, b_, result_, kWorkspaceBytes);
    chosen_ = true;
    const float one = 1, zero = 0;
    Check(cublasLtMatmul(device_.blas, operation_.get(), &one, a, a_.get(), b, b_.get(), &zero,
                         result, result_.get(), result, result_.get(), &algorithm_,
                         memory_.workspace, kWorkspaceBytes, device_.stream),
          "cublasLtMatmul");
  }

  Operation operation_;

 private:
  static constexpr size_t kWorkspaceBytes = 32 << 20;  // what NVIDIA advises for its newest GPUs

  const Matrix a_, b_, result_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool chosen_ = false;
};

class Linear : public Product {
 public:
  Linear(const OpSpec& spec, const Device& device)
      : Product(spec, device, false, false, spec.inputs[1].shape[0], spec.inputs[0].shape[0],
                spec.inputs[1].shape[1]) {
    input_layouts_[1] = Layout::Filter();
  }

  void Bind(const KernelMemory& memory) override {
    Product::Bind(memory);
    const bool relu = spec_.attributes_as<LinearAttributes>().relu;
    if (const float* bias = in<float>(2)) {
      operation_.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
      operation_.Set(CUBLASLT_MATMUL_DESC_EPILOGUE,
                     relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
    } else if (relu) {
      operation_.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
    }
  }

  void Run(const RunContext&) override { Multiply(in<float>(1), in<float>(0), out<float>(0)); }
};

// dx^T (C,N) = w (C,K) dy^T (K,N)
class LinearBackwardData : public Product {
 public:
  LinearBackwardData(const OpSpec& spec, const Device& device)
      : Product(spec, device, true, false, spec.inputs[1].shape[1], spec.inputs[0].shape[0],
                spec.inputs[1].shape[0]) {
    input_layouts_[1] = Layout::Filter();
  }

  void Run(const RunContext&) override { Multiply(in<float>(1), in<float>(0), out<float>(0)); }
};

// dw^T (K,C) = dy^T (K,N) x (N,C)
class LinearBackwardFilter : public Product {
 public:
  LinearBackwardFilter(const OpSpec& spec, const Device& device)
      : Product(spec, device, false, true, spec.inputs[1].shape[1], spec.inputs[0].shape[1],
                spec.inputs[0].shape[0]) {
    output_layouts_[0] = Layout::Filter();
    if (IsPresent(spec.outputs, 1))
      workspace_bytes_ =
          std::max(workspace_bytes_, ColumnSumsBytes(in_shape(1)[0], in_shape(1)[1]));
  }

  void Run(const RunContext&) override {
    Multiply(in<float>(1), in<float>(0), out<float>(0));
    if (float* db = out<float>(1)) {
      ColumnSums(device_.stream, in<float>(1), in_shape(1)[0], in_shape(1)[1], db,
                 memory_.workspace);
    }
  }
};

}  // namespace

std::unique_ptr<Kernel> MakeLinear(const OpSpec& spec, const Device& device) {
  return std::make_unique<Linear>(spec, device);
}
std::unique_ptr<Kernel> MakeLinearBackwardData(const OpSpec& spec, const Device& device) {
  return std::make_unique<LinearBackwardData>(spec, device);
}
std::unique_ptr<Kernel> MakeLinearBackwardFilter(const OpSpec& spec, const Device& device) {
  return std::make_unique<LinearBackwardFilter>(spec, device);
}

}  // namespace carole::cuda
