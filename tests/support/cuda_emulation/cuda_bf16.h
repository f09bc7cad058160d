// Replaces CUDA's header of this name; see cuda_runtime.h in this folder.
#pragma once

#include "src/core/float16.h"

using __nv_bfloat16 = carole::Bf16;
