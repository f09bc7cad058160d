// The interface to trained weights in a file, whatever program wrote it.
#pragma once

#include <cstdint>
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

}  // namespace carole::io
