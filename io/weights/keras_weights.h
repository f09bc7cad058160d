// Weights that Keras saved: a whole model or weights in the legacy layout (.h5), or weights in the
// layout of Keras 3 (.weights.h5).
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint/weights_source.h"

namespace carole::io {

// Opens the file. Names are "LAYER/WEIGHT", such as "conv1/kernel" or "bn_conv1/moving_mean",
// without the ":0" of Keras 2 (keras_names.h). A layer of a model inside of another model has the
// name of that model in front. Throws DataError if the file is damaged, holds no Keras weights, or
// holds floats that are listed neither as a weight nor as the state of an optimizer or metric.
// Throws DiskError if the file cannot be read.
//
// Keras writes attributes of variable length. The HDF5 library does not read those safely from
// hostile files (HeapStrings in hdf5.h), so open only files from a source that you trust.
std::unique_ptr<WeightsSource> OpenKerasWeights(const std::string& path);

}  // namespace carole::io
