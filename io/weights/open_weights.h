// Opens trained weights in any supported format, for fine-tuning, evaluation and conversion. This
// is the first header of the room io/weights.
//
//   std::unique_ptr<WeightsSource> weights = OpenWeights("vgg_16.ckpt");
//   for (const std::string& name : weights->names()) …  weights->shape(name) …
//   weights->Read(name, values);
//
// MappedWeights (weights_mapping.h) then finds the weights under the names of a net.
//
// To add a format: implement WeightsSource in a new file, with a function that opens it. Then add a
// row to kFormats in open_weights.cpp. The room may include io/checkpoint, io/tensorflow and core.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint/weights_source.h"

namespace carole::io {

// Appends ".h5" to `path` if `path` does not exist but that file does. So RUN/model.ckpt-100, a
// name in TensorFlow's form, finds RUN/model.ckpt-100.h5.
std::string ResolveWeightsPath(const std::string& path);

// Opens the weights at `path`, which may be
//   - a checkpoint of carole; the suffix .h5 may be left out;
//   - a model or weights of Keras (.h5), with the names of keras_weights.h;
//   - a TensorFlow checkpoint: V2 by its prefix or any of its files, V1 by its file, both by the
//     file `checkpoint`;
//   - a folder, which means its newest checkpoint, or a SavedModel.
// Throws DataError if there are no weights or they are damaged, DiskError if a file cannot be read.
std::unique_ptr<WeightsSource> OpenWeights(const std::string& path);
// The same, except that it returns null if there are no weights, and does not open a SavedModel.
std::unique_ptr<WeightsSource> TryOpenWeights(const std::string& path);

// Returns the reason why a folder is not opened although it has a TensorFlow checkpoint: it has no
// file `checkpoint` that names one. The text says what to do. "" if that is not the case.
std::string DescribeUnnamedCheckpoint(const std::string& folder);

}  // namespace carole::io
