// Weights that Keras saved: a whole model or weights in its legacy layout (.h5), or the layout of
// Keras 3 (.weights.h5).
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint/weights_source.h"

namespace carole::io {

// Names are "LAYER/WEIGHT": "conv1/kernel", "bn_conv1/moving_mean", without Keras 2's ":0". Throws
// DataError when the file is HDF5, but holds no weights of Keras's, or is damaged; DiskError.
// Attributes of Keras's files have variable length, for which the library does not vouch against
// files made to harm (hdf5.h): open only what somebody you know wrote.
std::unique_ptr<WeightsReader> OpenKerasWeights(const std::string& path);

}  // namespace carole::io
