// Trained weights from a file, whatever program wrote it: what fine-tuning begins with.
//
//   std::unique_ptr<WeightsReader> reader = OpenWeights("vgg_16.ckpt");
//   for (const std::string& name : reader->names()) …  reader->shape(name) …
//   reader->Read(name, values);
//
// To add a format: a class in a file of its own, a function that opens it, a row in
// weights_reader.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace carole::io {

struct Checkpoint;

// Names, sizes and elements are TensorFlow's: "vgg_16/conv1/conv1_1/weights", filters (R,S,C,K),
// matrices (C,K). One thread uses it.
class WeightsReader {
 public:
  virtual ~WeightsReader() = default;

  // Of the file, or the prefix of its files: where a folder was named, what was found in it.
  virtual const std::string& path() const = 0;

  // All tensors of floats in the file's order, optimizer slots and moving averages among them.
  virtual const std::vector<std::string>& names() const = 0;
  virtual bool Has(const std::string& name) const = 0;

  // Of a name that the file has.
  virtual Shape shape(const std::string& name) const = 0;
  // As the file stores them: "float32", "bfloat16".
  virtual std::string type(const std::string&) const { return "float32"; }
  // `out` holds shape(name).size() elements. Throws DataError when the file is damaged.
  virtual void Read(const std::string& name, std::span<float> out) const = 0;

  // Updates that made these weights, where the file says.
  virtual std::optional<int64_t> step() const { return std::nullopt; }
  // The whole checkpoint, slots and attributes too, of a file of this program; else null.
  virtual const Checkpoint* own() const { return nullptr; }
  // What else the file holds, "global_step int64 []": for people to read.
  virtual const std::vector<std::string>& left_out() const {
    static const std::vector<std::string> none;
    return none;
  }
};

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
