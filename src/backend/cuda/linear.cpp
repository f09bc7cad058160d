// Fully connected layers by cuBLASLt: x (N,C), w stored (C,K), y (N,K), multiplied in the type of
// x, summed in fp32. The library counts columns first, so it sees each matrix transposed: y^T (K,N)
// = w^T (K,C) x^T (C,N).
#include <cublasLt.h>
#include <cuda_runtime.h>

#include "src/backend/cuda/bias.h"
#include "src/backend/cuda/cuda.h"
#include "src/core/check.h"
#include "src/tensor/buffer.h"

namespace carole::cuda {
namespace {

void Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(fmt::format("[cublas] {}: {}", call, cublasLtGetStatusString(status)));
}

cudaDataType_t LibraryType(DType dtype) {
  return dtype == DType::kBF16 ? CUDA_R_16BF : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_32F;
}

// A matrix, columns one after the other.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t columns) {
    Check(cublasLtMatrixLayoutCreate(&layout_, LibraryType(dtype), static_cast<uint64_t>(rows),
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

class Preference {
 public:
  Preference() { Check(cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreference"); }
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <typename T>
  void Set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    Check(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

// The algorithm that the library thinks fastest, within the workspace and the alignment that plans
// have, among those that sum in fp32.
cublasLtMatmulAlgo_t Choose(const Device& device, const Operation& operation, const Matrix& a,
                            const Matrix& b, const Matrix& result, size_t workspace_bytes) {
  Preference preference;
  preference.Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  preference.Set<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                           CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  for (const auto matrix :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    preference.Set<uint32_t>(matrix, Buffer::kAlignment);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  Check(cublasLtMatmulAlgoGetHeuristic(device.blas, operation.get(), a.get(), b.get(), result.get(),
                                       result.get(), preference.get(), 1, &found, &count),
        "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0) throw DeviceError("[cublas] the library has no algorithm for this product");
  return found.algo;
}

// Numbers of a product: result (m,n) = op(a) op(b), all counted columns first.
struct Sizes {
  int64_t m, n, inner;
};

class Product : public CudaKernel {
 public:
  Product(const OpSpec& spec, const Device& device, bool transpose_a, bool transpose_b, Sizes s)
      : CudaKernel(spec, device),
        operation_(device.tf32 && ElementType(spec) == DType::kF32, transpose_a, transpose_b),
        a_(ElementType(spec), transpose_a ? s.inner : s.m, transpose_a ? s.m : s.inner),
        b_(ElementType(spec), transpose_b ? s.n : s.inner, transpose_b ? s.inner : s.n),
        result_(spec.outputs[0].dtype, s.m, s.n) {
    workspace_bytes_ = kWorkspaceBytes;
  }

  void Bind(const KernelMemory& memory) override {
    CudaKernel::Bind(memory);
    algorithm_ = Choose(device_, operation_, a_, b_, result_, kWorkspaceBytes);
  }

 protected:
  // Of inputs number a and b.
  void Multiply(size_t a, size_t b) {
    const float one = 1, zero = 0;
    std::byte* const result = memory_.outputs[0].data;
    Check(cublasLtMatmul(device_.blas, operation_.get(), &one, memory_.inputs[a].data, a_.get(),
                         memory_.inputs[b].data, b_.get(), &zero, result, result_.get(), result,
                         result_.get(), &algorithm_, memory_.workspace, kWorkspaceBytes,
                         device_.stream),
          "cublasLtMatmul");
  }

  Operation operation_;

 private:
  static constexpr size_t kWorkspaceBytes = 32 << 20;  // what NVIDIA advises for its newest GPUs

  const Matrix a_, b_, result_;
  cublasLtMatmulAlgo_t algorithm_{};
};

class Linear : public Product {
 public:
  Linear(const OpSpec& spec, const Device& device)
      : Product(spec, device, false, false,
                {spec.inputs[1].shape[0], spec.inputs[0].shape[0], spec.inputs[1].shape[1]}),
        relu_(spec.attributes_as<LinearAttributes>().relu) {
    input_layouts_[1] = Layout::Filter();
  }

  // The library adds biases in the type of the result only, which must not round ours.
  void Bind(const KernelMemory& memory) override {
    memory_ = memory;
    const float* bias = in<float>(2);
    adds_bias_ = bias != nullptr && out_type() == DType::kF32;
    if (adds_bias_) {
      operation_.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
      operation_.Set(CUBLASLT_MATMUL_DESC_EPILOGUE,
                     relu_ ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
    } else if (relu_ && bias == nullptr) {
      operation_.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
    }
    Product::Bind(memory);
  }

  void Run(const RunContext&) override {
    Multiply(1, 0);
    const float* bias = in<float>(2);
    if (bias == nullptr || adds_bias_) return;
    AddBiasRelu(device_.stream, out_type(), memory_.outputs[0].data, bias, out_shape(0)[0],
                out_shape(0)[1], relu_);
  }

 private:
  DType out_type() const { return spec_.outputs[0].dtype; }

  const bool relu_;
  bool adds_bias_ = false;
};

// dx^T (C,N) = w (C,K) dy^T (K,N)
class LinearBackwardData : public Product {
 public:
  LinearBackwardData(const OpSpec& spec, const Device& device)
      : Product(spec, device, true, false,
                {spec.inputs[1].shape[1], spec.inputs[0].shape[0], spec.inputs[1].shape[0]}) {
    input_layouts_[1] = Layout::Filter();
  }

  void Run(const RunContext&) override { Multiply(1, 0); }
};

// dw^T (K,C) = dy^T (K,N) x (N,C)
class LinearBackwardFilter : public Product {
 public:
  LinearBackwardFilter(const OpSpec& spec, const Device& device)
      : Product(spec, device, false, true,
                {spec.inputs[1].shape[1], spec.inputs[0].shape[1], spec.inputs[0].shape[0]}) {
    output_layouts_[0] = Layout::Filter();
    if (IsPresent(spec.outputs, 1)) {
      workspace_bytes_ = std::max(
          workspace_bytes_, ColumnSumsBytes(ElementType(spec), in_shape(1)[0], in_shape(1)[1]));
    }
  }

  void Run(const RunContext&) override {
    Multiply(1, 0);
    if (float* db = out<float>(1)) {
      ColumnSums(device_.stream, ElementType(spec_), memory_.inputs[1].data, in_shape(1)[0],
                 in_shape(1)[1], db, memory_.workspace);
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
