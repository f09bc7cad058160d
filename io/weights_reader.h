// Trained weights from a file, whatever program wrote it: what fine-tuning begins with.
//
//   std::unique_ptr<WeightsReader> reader = OpenWeights("vgg_16.ckpt");
//   for (const std::string& name : reader->names()) …  reader->shape(name) …
//   reader->Read(name, values);
//
// To add a format: a class in a file of its own, a function that opens it, a row in
// weights_reader.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace carole::io {

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
  // `out` holds shape(name).size() elements. Throws DataError when the file is damaged.
  virtual void Read(const std::string& name, std::span<float> out) const = 0;
};

// A checkpoint of this program (.h5), or a folder for its newest good one. Throws DataError when
// there is nothing of the kind at `path`, or it is damaged; DiskError when it cannot be read.
std::unique_ptr<WeightsReader> OpenWeights(const std::string& path);

}  // namespace carole::io
