// Emulates cuBLASLt on the CPU; replaces its header (see cuda_runtime.h in this folder). It reads
// the same descriptors, refuses what the library's documentation forbids, and computes the product.
// So it detects a wrong leading dimension, transposition, type, epilogue or alignment.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/cuda_emulation/numbers.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6
};
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8
};
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};
enum cublasLtReductionScheme_t { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };

// The attributes of a descriptor. Each must have the right number of bytes.
template <typename Attribute>
struct EmulatedAttributes {
  cublasStatus_t Set(Attribute attribute, const void* value, size_t bytes, size_t want) {
    if (value == nullptr || bytes != want) return CUBLAS_STATUS_INVALID_VALUE;
    uint64_t number = 0;
    std::memcpy(&number, value, bytes);
    values[attribute] = number;
    return CUBLAS_STATUS_SUCCESS;
  }
  uint64_t Get(Attribute attribute, uint64_t default_value) const {
    const auto found = values.find(attribute);
    return found == values.end() ? default_value : found->second;
  }
  std::map<Attribute, uint64_t> values;
};

struct cublasLtContext {};
using cublasLtHandle_t = cublasLtContext*;
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
};
struct cublasLtMatmulDescOpaque_t : EmulatedAttributes<cublasLtMatmulDescAttributes_t> {
  cublasComputeType_t compute;
  uint64_t epilogue() const {
    return Get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  }
  bool transposes_a() const { return Get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) == CUBLAS_OP_T; }
  bool transposes_b() const { return Get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) == CUBLAS_OP_T; }
  const float* bias() const {
    return reinterpret_cast<const float*>(Get(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 0));
  }
};
struct cublasLtMatmulPreferenceOpaque_t : EmulatedAttributes<cublasLtMatmulPreferenceAttributes_t> {
};
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque_t*;
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque_t*;
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque_t*;

// An algorithm is valid for this epilogue, alignment (in bytes) and workspace.
struct cublasLtMatmulAlgo_t {
  uint64_t epilogue, alignment, workspace_bytes;
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
};

// Describes the last product of this thread, for example "bf16 NT to f32, relu, bias".
inline std::string& EmulatedLastMatmul() {
  static thread_local std::string last;
  return last;
}

inline const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "emulated: invalid value"
                                               : "emulated: not supported";
}

inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                                 cudaDataType_t type, uint64_t rows,
                                                 uint64_t columns, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayoutOpaque_t{type, rows, columns, leading};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *descriptor = new cublasLtMatmulDescOpaque_t{{}, compute};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  delete descriptor;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                                     cublasLtMatmulDescAttributes_t attribute,
                                                     const void* value, size_t bytes) {
  const bool is_pointer = attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER;
  return descriptor->Set(attribute, value, bytes, is_pointer ? sizeof(void*) : 4);
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void* value, size_t bytes) {
  const bool is_size = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  return preference->Set(attribute, value, bytes, is_size ? 8 : 4);
}

// Whether the sizes match: (m,inner) (inner,n) = (m,n).
inline bool EmulatedFits(const cublasLtMatmulDescOpaque_t& d, const cublasLtMatrixLayoutOpaque_t& a,
                         const cublasLtMatrixLayoutOpaque_t& b,
                         const cublasLtMatrixLayoutOpaque_t& result) {
  const uint64_t m = d.transposes_a() ? a.columns : a.rows;
  const uint64_t inner = d.transposes_a() ? a.rows : a.columns;
  const uint64_t n = d.transposes_b() ? b.rows : b.columns;
  return inner == (d.transposes_b() ? b.columns : b.rows) && result.rows == m &&
         result.columns == n;
}

// Whether the library's table for CUBLAS_COMPUTE_32F lists these types. The bias has the type of
// the result.
inline bool EmulatedHasTypes(const cublasLtMatmulDescOpaque_t& d, cudaDataType_t a,
                             cudaDataType_t b, cudaDataType_t result) {
  const bool has_bias = (d.epilogue() & CUBLASLT_EPILOGUE_BIAS) != 0;
  if (a != b || (has_bias && result != CUDA_R_32F)) return false;  // our biases are fp32
  if (d.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return a == CUDA_R_32F && result == CUDA_R_32F;
  return result == a || result == CUDA_R_32F;
}

inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t result, cublasLtMatmulPreference_t preference,
    int wanted, cublasLtMatmulHeuristicResult_t* found, int* count) {
  *count = 0;
  if (!EmulatedFits(*d, *a, *b, *result) || c->type != result->type || wanted < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((d->epilogue() & CUBLASLT_EPILOGUE_BIAS) != 0 && d->bias() == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!EmulatedHasTypes(*d, a->type, b->type, result->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // With another reduction scheme, parts of a sum might be added in 16 bits.
  if (preference->Get(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, ~uint64_t{0}) !=
      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  uint64_t alignment = 256;
  for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
       i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; ++i) {
    const auto which = static_cast<cublasLtMatmulPreferenceAttributes_t>(i);
    alignment = std::min(alignment, preference->Get(which, 256));
  }
  found->workspaceSize =
      std::min<uint64_t>(4096, preference->Get(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0));
  found->algo = {d->epilogue(), alignment, found->workspaceSize};
  found->state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

// A column-major matrix in memory.
struct EmulatedMatrix {
  cublasLtMatrixLayoutOpaque_t layout;
  void* data;

  // Returns the elements row by row, or column by column.
  std::vector<double> Read(bool by_rows) const {
    const uint64_t outer = by_rows ? layout.rows : layout.columns;
    const uint64_t inner = by_rows ? layout.columns : layout.rows;
    std::vector<double> numbers;
    numbers.reserve(outer * inner);
    for (uint64_t i = 0; i < outer; ++i)
      for (uint64_t k = 0; k < inner; ++k)
        numbers.push_back(EmulatedGet(type(), data, by_rows ? Offset(i, k) : Offset(k, i)));
    return numbers;
  }
  void Put(uint64_t row, uint64_t column, float value) const {
    EmulatedPut(type(), data, Offset(row, column), value);
  }

 private:
  int64_t Offset(uint64_t row, uint64_t column) const {
    return static_cast<int64_t>(row) + static_cast<int64_t>(column) * layout.leading;
  }
  EmulatedType type() const {
    return layout.type == CUDA_R_16BF  ? EmulatedType::kBF16
           : layout.type == CUDA_R_16F ? EmulatedType::kF16
                                       : EmulatedType::kF32;
  }
};

inline void EmulatedDescribe(const cublasLtMatmulDescOpaque_t& d,
                             const cublasLtMatrixLayoutOpaque_t& a,
                             const cublasLtMatrixLayoutOpaque_t& result) {
  const auto name = [](cudaDataType_t type) {
    return std::string(type == CUDA_R_16BF ? "bf16" : type == CUDA_R_16F ? "fp16" : "f32");
  };
  const bool tf32 = d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  EmulatedLastMatmul() = (tf32 ? "tf32" : name(a.type)) + (d.transposes_a() ? " T" : " N") +
                         (d.transposes_b() ? "T to " : "N to ") + name(result.type) +
                         ((d.epilogue() & CUBLASLT_EPILOGUE_RELU) != 0 ? ", relu" : "") +
                         ((d.epilogue() & CUBLASLT_EPILOGUE_BIAS) != 0 ? ", bias" : "");
}

// result = [relu](op(a) op(b) [+ bias])
inline void EmulatedMultiply(const cublasLtMatmulDescOpaque_t& d, const EmulatedMatrix& a,
                             const EmulatedMatrix& b, const EmulatedMatrix& result) {
  const uint64_t inner = d.transposes_a() ? a.layout.rows : a.layout.columns;
  std::vector<double> left = a.Read(!d.transposes_a()), right = b.Read(d.transposes_b());
  if (d.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
    EmulatedRoundToTf32(left);
    EmulatedRoundToTf32(right);
  }
  for (uint64_t column = 0; column < result.layout.columns; ++column) {
    for (uint64_t row = 0; row < result.layout.rows; ++row) {
      double sum =
          EmulatedDot(&left[row * inner], &right[column * inner], static_cast<int64_t>(inner));
      if ((d.epilogue() & CUBLASLT_EPILOGUE_BIAS) != 0) sum += d.bias()[row];
      if ((d.epilogue() & CUBLASLT_EPILOGUE_RELU) != 0) sum = sum > 0 ? sum : 0;
      result.Put(row, column, static_cast<float>(sum));
    }
  }
}

inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void* alpha,
                                     const void* a_data, cublasLtMatrixLayout_t a_layout,
                                     const void* b_data, cublasLtMatrixLayout_t b_layout,
                                     const void* beta, const void*, cublasLtMatrixLayout_t,
                                     void* data, cublasLtMatrixLayout_t layout,
                                     const cublasLtMatmulAlgo_t* algo, void* workspace,
                                     size_t workspace_bytes, cudaStream_t stream) {
  const auto is_aligned = [](const void* p, uint64_t bytes) {
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
  };
  const bool fits_algorithm =
      algo->epilogue == d->epilogue() && algo->workspace_bytes <= workspace_bytes &&
      is_aligned(d->bias(), 16) && is_aligned(a_data, algo->alignment) &&
      is_aligned(b_data, algo->alignment) && is_aligned(data, algo->alignment);
  // cuBLAS 13 on an H200 refuses a bias that the epilogue does not use.
  const bool has_stray_bias = d->bias() != nullptr && (d->epilogue() & CUBLASLT_EPILOGUE_BIAS) == 0;
  constexpr uint64_t kWorkspaceAlignment = 256;
  if (!fits_algorithm || has_stray_bias || !is_aligned(workspace, kWorkspaceAlignment) ||
      *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  EmulatedDescribe(*d, *a_layout, *layout);
  const EmulatedMatrix a{*a_layout, const_cast<void*>(a_data)};
  const EmulatedMatrix b{*b_layout, const_cast<void*>(b_data)};
  const EmulatedMatrix result{*layout, data};
  EmulatedPush(stream, [d = *d, a, b, result, workspace, bytes = algo->workspace_bytes] {
    std::memset(workspace, 0xFF, bytes);
    EmulatedMultiply(d, a, b, result);
  });
  return CUBLAS_STATUS_SUCCESS;
}
