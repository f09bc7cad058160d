// The tensor-core instruction for 16-bit matrix products, with operands in registers. Private to
// src/backend/cuda. Needs a GPU of compute capability kMinTensorCoreCapability or higher; kernels
// that use it trap on older ones.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace carole::cuda {

inline constexpr int kMinTensorCoreCapability = 80;  // compute capability 8.0

// d += a b, with a (16,16), b (16,8) and d (16,8), summed in fp32. T is __nv_bfloat16 or __half.
// All 32 threads of a warp must call it together. Lane 4 * g + t holds these elements; each word of
// a and b holds two elements, k and k + 1:
//   a    rows g, g + 8, g, g + 8; k = 2t, 2t, 2t + 8, 2t + 8
//   b    column g; k = 2t, 2t + 8
//   d    rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16".
template <typename T>
__device__ void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifndef __CUDACC__
  cuda_emulation::MultiplyAdd<T>(d, a, b);
#elif __CUDA_ARCH__ < 800
  __trap();
#else
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

}  // namespace carole::cuda
