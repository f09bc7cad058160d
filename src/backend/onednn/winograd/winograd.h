// 3x3 convolutions with Winograd's minimal filtering algorithm. It needs a quarter of the
// multiplications of a direct convolution. All arithmetic is fp32, for bf16 activations too.
// Private to the oneDNN backend. winograd.cpp explains the algorithm.
#pragma once

#include "src/backend/onednn/kernels/onednn.h"

namespace carole::onednn {

// Whether this operation is a convolution, or a gradient of one, that MakeWinograd() supports, and,
// for Winograd::kIfFaster, is faster than oneDNN's primitives. The answer depends on shapes,
// precision and kind of CPU only, so that all ranks and runs compute in the same way.
bool UsesWinograd(const OpSpec& spec, Winograd use);

// Makes the kernel. Call it only if UsesWinograd().
std::unique_ptr<Kernel> MakeWinograd(const OpSpec& spec, int threads);

}  // namespace carole::onednn
