// Stands in for CUDA's header, see cuda_runtime.h here.
#pragma once

#include "src/core/float16.h"

using __nv_bfloat16 = carole::Bf16;
