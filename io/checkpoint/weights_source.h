// The interface to trained weights in a file of any format. Implementations: io/weights.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/core/shape.h"

namespace carole::io {

struct Checkpoint;

// A file of named tensors. Names, shapes and order of elements are TensorFlow's:
// "vgg_16/conv1/conv1_1/weights", filters (R,S,C,K), matrices (C,K). One thread uses a source.
class WeightsSource {
 public:
  virtual ~WeightsSource() = default;

  // The path of the file, or the prefix of its files. If a folder was opened, the file found in it.
  virtual const std::string& path() const = 0;

  // The names of all tensors of floats, in the file's order. They include optimizer slots and
  // moving averages.
  virtual const std::vector<std::string>& names() const = 0;
  virtual bool Has(const std::string& name) const = 0;

  // shape(), type() and Read() require Has(name).
  virtual Shape shape(const std::string& name) const = 0;
  // The element type in the file, such as "float32" or "bfloat16".
  virtual std::string type(const std::string&) const { return "float32"; }
  // Reads the elements, converted to float32, into `out`, which has shape(name).size() elements.
  // Throws DataError if the file is damaged.
  virtual void Read(const std::string& name, std::span<float> out) const = 0;

  // The number of training steps behind these weights; nullopt if the file does not store it.
  // Throws DataError if what it stores is not a number of steps.
  virtual std::optional<int64_t> step() const { return std::nullopt; }
  // The whole checkpoint, with slots and attributes, if carole wrote the file; else null. The
  // elements stay in the file (CheckpointVariable::read).
  virtual const Checkpoint* carole_checkpoint() const { return nullptr; }
  // Descriptions of the other tensors in the file, such as "global_step int64 []", for messages.
  virtual const std::vector<std::string>& other_tensors() const {
    static const std::vector<std::string> none;
    return none;
  }

  // The name that the program gave to the variable of tensor `name`, such as "conv1/kernel"; "" if
  // the file stores only `name`. Requires Has(name).
  virtual std::string variable_name(const std::string& /*name*/) const { return ""; }
  // The reason in the file why its tensors do not fit a net, and what to do; "" if the file is an
  // ordinary one. An error message ends with this text.
  virtual const std::string& misfit_hint() const {
    static const std::string none;
    return none;
  }
};

}  // namespace carole::io
