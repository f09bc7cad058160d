// Trained weights from a file, whatever program wrote it: what fine-tuning begins with.
//
//   std::unique_ptr<WeightsReader> reader = OpenWeights("vgg_16.ckpt");
//   for (const std::string& name : reader->names()) …  reader->shape(name) …
//   reader->Read(name, values);
//
// To add a format: a class in a file of its own, a function that opens it, a row in
// open_weights.cpp.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint/weights_source.h"

namespace carole::io {

// RUN/model.ckpt-100.h5 for RUN/model.ckpt-100, as TensorFlow would name it, where only the former
// is there; else the path.
std::string WeightsFile(const std::string& path);

// A checkpoint of this program (.h5, which may be left out), of Keras (.h5: whole models and
// weights, under the names of keras_weights.h), of TensorFlow (V2: the prefix of its files or any
// of them; V1: the file), or a folder for the newest one, or of a SavedModel. Throws DataError when
// there is nothing of the kind at `path`, or it is damaged; DiskError when it cannot be read.
std::unique_ptr<WeightsReader> OpenWeights(const std::string& path);
// The same; null when there is nothing of the kind.
std::unique_ptr<WeightsReader> TryOpenWeights(const std::string& path);

}  // namespace carole::io
