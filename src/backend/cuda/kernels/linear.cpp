// Fully connected layers by cuBLASLt: x (N,C), w stored as (C,K), y (N,K). They multiply in the
// type of x and sum in fp32. Matrices of cuBLASLt are column-major, so it sees each of ours
// transposed: y^T (K,N) = w^T (K,C) x^T (C,N).
#include "src/backend/ops/linear.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <memory>
#include <type_traits>

#include "src/backend/cuda/kernels/bias.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/cuda/runtime/scratch.h"
#include "src/backend/ops/conv2d.h"
#include "src/core/check.h"
#include "src/tensor/buffer.h"

namespace carole::cuda {
namespace {

constexpr auto kIn = kPosition<FilterGradientInputs>;
constexpr auto kOut = kPosition<FilterGradientOutputs>;

void Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(fmt::format("[cublas] {}: {}", call, cublasLtGetStatusString(status)));
}

cudaDataType_t LibraryType(DType dtype) {
  return dtype == DType::kBF16 ? CUDA_R_16BF : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_32F;
}

// Owning pointers to the descriptors of cuBLASLt.
template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* description) const {
    destroy(description);
  }
};
template <typename Pointer, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy<destroy>>;
using Matrix = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <typename T>
void Set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  Check(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void Set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  Check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

// Describes a column-major matrix without gaps.
Matrix MakeMatrix(DType dtype, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  Check(cublasLtMatrixLayoutCreate(&layout, LibraryType(dtype), static_cast<uint64_t>(rows),
                                   static_cast<uint64_t>(columns), rows),
        "cublasLtMatrixLayoutCreate");
  return Matrix(layout);
}

Operation MakeOperation(bool tf32, bool transpose_a, bool transpose_b) {
  cublasLtMatmulDesc_t descriptor = nullptr;
  Check(cublasLtMatmulDescCreate(
            &descriptor, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  Operation operation(descriptor);
  Set(operation, CUBLASLT_MATMUL_DESC_TRANSA, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(operation, CUBLASLT_MATMUL_DESC_TRANSB, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  return operation;
}

constexpr size_t kMaxWorkspaceBytes = 32 << 20;  // as NVIDIA recommends for its newest GPUs

// Allows algorithms that sum in fp32, with the workspace and the alignment that kernels get.
Preference MakePreference() {
  cublasLtMatmulPreference_t made = nullptr;
  Check(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  Preference preference(made);
  Set<uint64_t>(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspaceBytes);
  Set<uint32_t>(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  for (const auto matrix :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    Set<uint32_t>(preference, matrix, Buffer::kAlignment);
  return preference;
}

// Returns the algorithm that cuBLASLt expects to be the fastest. Throws DeviceError if there is
// none.
cublasLtMatmulHeuristicResult_t Choose(const Device& device, const Operation& operation,
                                       const Matrix& a, const Matrix& b, const Matrix& result) {
  const Preference preference = MakePreference();
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  Check(cublasLtMatmulAlgoGetHeuristic(device.blas, operation.get(), a.get(), b.get(), result.get(),
                                       result.get(), preference.get(), 1, &found, &count),
        "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS)
    throw DeviceError("[cublas] matrix product: cuBLASLt has no algorithm for it");
  return found;
}

// The product result (m,n) = op(a) op(b) of column-major matrices, followed by an epilogue.
struct MatmulOptions {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, inner = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

class Matmul : public CudaKernel {
 public:
  Matmul(const OpSpec& spec, const Device& device, const MatmulOptions& o)
      : CudaKernel(spec, device),
        operation_(MakeOperation(device.tf32 && ElementType(spec) == DType::kF32, o.transpose_a,
                                 o.transpose_b)),
        a_(MakeMatrix(ElementType(spec), o.transpose_a ? o.inner : o.m,
                      o.transpose_a ? o.m : o.inner)),
        b_(MakeMatrix(ElementType(spec), o.transpose_b ? o.n : o.inner,
                      o.transpose_b ? o.inner : o.n)),
        result_(MakeMatrix(spec.outputs[0].dtype, o.m, o.n)) {
    Set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, o.epilogue);
    if ((o.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
      // The heuristic needs a bias pointer, but reads only its alignment.
      SetBias(reinterpret_cast<const float*>(Buffer::kAlignment));
    chosen_ = Choose(device_, operation_, a_, b_, result_);
    workspace_bytes_ = chosen_.workspaceSize + kScratchAlignment;
  }

 protected:
  void SetBias(const float* bias) { Set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }

  // Multiplies the inputs number a and b.
  void Multiply(size_t a, size_t b) {
    const float one = 1, zero = 0;
    std::byte* const result = memory_.outputs[0].data;
    Check(cublasLtMatmul(device_.blas, operation_.get(), &one, memory_.inputs[a].data, a_.get(),
                         memory_.inputs[b].data, b_.get(), &zero, result, result_.get(), result,
                         result_.get(), &chosen_.algo, AlignScratch(memory_.workspace),
                         chosen_.workspaceSize, device_.stream),
          "cublasLtMatmul");
  }

 private:
  const Operation operation_;
  const Matrix a_, b_, result_;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

class Linear : public Matmul {
 public:
  Linear(const OpSpec& spec, const Device& device)
      : Matmul(spec, device,
               {.m = spec.inputs[1].shape[0],
                .n = spec.inputs[0].shape[0],
                .inner = spec.inputs[1].shape[1],
                .epilogue = Epilogue(spec)}) {
    input_layouts_[1] = Layout::Filter();
  }

  void Bind(const KernelMemory& memory) override {
    Matmul::Bind(memory);
    if (AddsBias(spec_)) SetBias(in<float>(2));  // cuBLASLt refuses a bias that it does not add
  }

  void Run(const RunContext&) override {
    Multiply(1, 0);
    const float* bias = in<float>(2);
    if (bias == nullptr || AddsBias(spec_)) return;
    AddBiasRelu(device_.stream, spec_.outputs[0].dtype, memory_.outputs[0].data, bias, nullptr,
                out_shape(0)[0], out_shape(0)[1], spec_.attributes.as<LinearAttributes>().relu);
  }

 private:
  // Whether cuBLASLt adds the bias. It can add a bias of the type of the result only, and ours must
  // not be rounded to 16 bits.
  static bool AddsBias(const OpSpec& spec) {
    return IsPresent(spec.inputs, 2) && spec.outputs[0].dtype == DType::kF32;
  }
  static cublasLtEpilogue_t Epilogue(const OpSpec& spec) {
    const bool relu = spec.attributes.as<LinearAttributes>().relu;
    if (AddsBias(spec)) return relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    return relu && !IsPresent(spec.inputs, 2) ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
  }
};

// A 1x1 convolution of a single pixel with a result in fp32 (IsMatmulToFp32). Its filter lies (K,C)
// in memory, as those of convolutions do: y^T (K,N) = w (K,C) x^T (C,N). The bias is added in fp32.
class MatmulToFp32 : public Matmul {
 public:
  MatmulToFp32(const OpSpec& spec, const Device& device)
      : Matmul(spec, device,
               {.transpose_a = true,
                .m = spec.inputs[1].shape[0],
                .n = spec.inputs[0].shape[0],
                .inner = spec.inputs[1].shape[1]}) {
    input_layouts_[1] = Layout::Nhwc();
  }

  void Run(const RunContext&) override {
    Multiply(1, 0);
    AddBiasRelu(device_.stream, DType::kF32, memory_.outputs[0].data, in<float>(2), nullptr,
                out_shape(0)[0], out_shape(0)[1], spec_.attributes.as<Conv2dAttributes>().relu);
  }
};

// dx^T (C,N) = w (C,K) dy^T (K,N)
class LinearBackwardData : public Matmul {
 public:
  LinearBackwardData(const OpSpec& spec, const Device& device)
      : Matmul(spec, device,
               {.transpose_a = true,
                .m = spec.inputs[1].shape[1],
                .n = spec.inputs[0].shape[0],
                .inner = spec.inputs[1].shape[0]}) {
    input_layouts_[1] = Layout::Filter();
  }

  void Run(const RunContext&) override { Multiply(1, 0); }
};

// Gradient of a matrix of filters.
//   first = dy    filters lie (C,K) in memory:  dw^T (K,C) = dy^T (K,N) x (N,C)
//   first = x      filters lie (K,C), as those of convolutions do:  dw^T (C,K) = x^T (C,N) dy (N,K)
template <int first>
class MatrixBackwardFilter : public Matmul {
  static constexpr int kSecond = first == kIn.x ? kIn.dy : kIn.x;

 public:
  MatrixBackwardFilter(const OpSpec& spec, const Device& device)
      : Matmul(spec, device,
               {.transpose_b = true,
                .m = Columns(spec.inputs[first].shape),
                .n = Columns(spec.inputs[kSecond].shape),
                .inner = spec.inputs[first].shape[0]}) {
    output_layouts_[kOut.dw] = first == kIn.x ? Layout::Nhwc() : Layout::Filter();
    if (IsPresent(spec.outputs, kOut.db)) {
      workspace_bytes_ = std::max(workspace_bytes_,
                                  ColumnSumsBytes(ElementType(spec), dy_shape()[0], dy_shape()[1]));
    }
  }

  void Run(const RunContext&) override {
    Multiply(first, kSecond);
    if (float* db = out<float>(kOut.db)) {
      ColumnSums(device_.stream, ElementType(spec_), memory_.inputs[kIn.dy].data, dy_shape()[0],
                 dy_shape()[1], db, memory_.workspace);
    }
  }

 private:
  static int64_t Columns(const Shape& matrix) { return matrix.size() / matrix[0]; }
  const Shape& dy_shape() const { return in_shape(kIn.dy); }
};

bool IsMatmul(const OpSpec& spec, const Device& device) {
  return SupportsTypes(spec, device) && IsMatmulToFp32(spec);
}
bool IsMatmulBackwardFilter(const OpSpec& spec, const Device& device) {
  return SupportsTypes(spec, device) && IsMatmulBackwardFilterToFp32(spec) && !HasReluYInput(spec);
}

constexpr KernelRow kRows[] = {
    {.kind = op::kLinear, .make = Make<Linear>},
    {.kind = op::kLinearBackwardData, .make = Make<LinearBackwardData>},
    {.kind = op::kLinearBackwardFilter, .make = Make<MatrixBackwardFilter<kIn.dy>>},
    {.kind = op::kConv2d, .make = Make<MatmulToFp32>, .supports = IsMatmul, .priority = 2},
    {.kind = op::kConv2dBackwardFilter,
     .make = Make<MatrixBackwardFilter<kIn.x>>,
     .supports = IsMatmulBackwardFilter,
     .priority = 1},
};

}  // namespace

KernelRows LinearKernels() { return kRows; }

}  // namespace carole::cuda
