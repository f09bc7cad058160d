// Convolutions of 3x3 taps by Winograd's minimal filtering: a quarter of the multiplications, which
// are fp32 whatever the maps are. Private to this folder.
#pragma once

#include "src/backend/onednn/kernels/onednn.h"

namespace carole::onednn {

// Whether this is a convolution, or a gradient of one, that it can make, and as `use` says, faster
// than the library's primitives do. That depends on shapes, precision and kind of CPU only, so that
// all ranks and runs compute in the same way.
bool WantsWinograd(const OpSpec& spec, Winograd use);

std::unique_ptr<Kernel> MakeWinograd(const OpSpec& spec, int threads);

}  // namespace carole::onednn
